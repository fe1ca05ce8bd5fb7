package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/internal/terminal"
	"github.com/sampan-io/sampan/internal/wholefile"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the objects of a cluster to a file, and restore them",
		Long: "A snapshot is a file with all objects of a cluster at one revision. It has no images, logs or data of volumes. Secrets in it\n" +
			"are encrypted with the keys of the cluster, unless the whole file is encrypted with a passphrase or key.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(snapshotSave(), snapshotList(), snapshotInspect(), snapshotRestore())
	return cmd
}

// keysFlags adds the flags of keys that encrypt a snapshot file.
func keysFlags(f *pflag.FlagSet, k *snapshots.Keys) {
	f.StringVar(&k.PassphraseFile, "passphrase-file", "", "file whose first line is the passphrase of the snapshot file, at least 8 bytes")
	f.StringVar(&k.KeyFile, "key-file", "", "file with keys of age (age-keygen) for the snapshot file")
}

// checkKeys says that the flags of keys exclude each other.
func checkKeys(k snapshots.Keys) error {
	if k.PassphraseFile != "" && k.KeyFile != "" {
		return errors.New("--passphrase-file and --key-file: pass one of them")
	}
	return nil
}

// credentialsOf returns the administrator's credentials of a running cluster of this machine.
func credentialsOf(cmd *cobra.Command) (local.Profile, local.Credentials, error) {
	p, i, running, err := found(cmd)
	if err == nil {
		err = checkNoMember(p)
	}
	switch {
	case err != nil:
		return p, local.Credentials{}, err
	case !running:
		return p, local.Credentials{}, fmt.Errorf("%w%s", stopped(cmd, p), others(p))
	case i.Starting() && i.Damage == "":
		return p, local.Credentials{}, fmt.Errorf("cluster %s is still starting", p.Name)
	}
	c, ok := p.SavedCredentials()
	if !ok {
		return p, c, noCredentials(cmd, p)
	}
	return p, c, nil
}

func snapshotSave() *cobra.Command {
	var (
		keys snapshots.Keys
		with bool
	)
	cmd := &cobra.Command{
		Use:   "save [FILE|-]",
		Short: "Save a snapshot of a running cluster",
		Long: "Save all objects of a running cluster at one revision to FILE, or to standard output. The default is a file in the directory\n" +
			"snapshots of the data directory, which `sampan down --purge` removes. FILE is written as a whole or not at all, and only its\n" +
			"owner may read it. Another machine can save the snapshot of a cluster with\n" +
			"`kubectl get --raw /sampan/v1/snapshot`.",
		Example: "  sampan snapshot save\n  sampan snapshot save /backup/edge.snapshot --name=edge\n  sampan snapshot save /backup/edge.age --with-keys --passphrase-file=/root/passphrase",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKeys(keys); err != nil {
				return err
			}
			p, c, err := credentialsOf(cmd)
			if err != nil {
				return err
			}
			hintOther(cmd, p)
			filing := snapshots.Filing{Keys: keys}
			if with {
				filing.PKI = p.PKI()
			}
			if len(args) > 0 && args[0] == "-" {
				return saveToOutput(cmd, c, filing)
			}
			file, err := snapshotFile(p, args)
			if err != nil {
				return err
			}
			d, err := saveFile(cmd.Context(), c, file, filing)
			if err != nil {
				return err
			}
			if printed, err := asObject(cmd); printed || err != nil {
				return errors.Join(err, encode(cmd, inspected{d, file}))
			}
			return printSaved(cmd, p, file, d)
		},
	}
	keysFlags(cmd.Flags(), &keys)
	cmd.Flags().BoolVar(&with, "with-keys", false, "also save the keys of the cluster, so that a restored cluster is the same for its clients; needs --passphrase-file or --key-file")
	return cmd
}

// printSaved describes a saved snapshot, and the keys that a restore of it needs.
func printSaved(cmd *cobra.Command, p local.Profile, file string, d snapshots.Description) error {
	out := cmd.OutOrStdout()
	_, err := fmt.Fprintf(out, "saved %s: revision %d of cluster %s, %d objects%s\n", file, d.Revision, d.Cluster, d.Records, leftOut(d))
	if err != nil || d.Sealed {
		return err
	}
	keys, err := p.SecretKeys()
	if err == nil {
		_, err = fmt.Fprintf(out, "to restore the Secrets in it, the file %s is needed: keep a copy of it, or save with --passphrase-file or --key-file\n", keys)
	}
	return err
}

// snapshotFile returns the file to save a snapshot to.
func snapshotFile(p local.Profile, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	dir, err := p.SnapshotDir()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return filepath.Join(dir, p.Name+"-"+time.Now().UTC().Format(snapshots.FileTime)+snapshots.Extension), err
}

func leftOut(d snapshots.Description) string {
	if d.Unreadable == 0 {
		return ""
	}
	return fmt.Sprintf("; %d records that the cluster cannot read are left out", d.Unreadable)
}

// saveToOutput writes a snapshot of a running cluster to standard output, byte for byte.
func saveToOutput(cmd *cobra.Command, c local.Credentials, filing snapshots.Filing) error {
	if _, is := terminal.File(cmd.OutOrStdout()); is {
		return errors.New("the snapshot is not written to a terminal: redirect the output, or pass a file")
	}
	if o := flag(cmd, "output"); o != "" {
		return fmt.Errorf("-o %s: standard output gets the snapshot; pass a file instead of -", o)
	}
	_, err := fetchInto(cmd.Context(), c, terminal.Raw(cmd.OutOrStdout()), filing)
	return err
}

// fetchInto writes a snapshot of a running cluster.
func fetchInto(ctx context.Context, c local.Credentials, out io.Writer, filing snapshots.Filing) (snapshots.Description, error) {
	in, err := snapshots.Fetch(ctx, c, filing.Keys.Any())
	if err != nil {
		return snapshots.Description{}, err
	}
	defer in.Close()
	return snapshots.WriteFile(out, in, filing)
}

// saveFile writes a snapshot of a running cluster to a file, wholly or not at all.
func saveFile(ctx context.Context, c local.Credentials, file string, filing snapshots.Filing) (d snapshots.Description, err error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return d, fmt.Errorf("%s is not a regular file", file)
	}
	f, err := wholefile.Create(file, 0o600, wholefile.Durable)
	if err != nil {
		return d, err
	}
	defer f.Discard()
	if d, err = fetchInto(ctx, c, f, filing); err != nil {
		return d, fmt.Errorf("%w; %s was not written", err, file)
	}
	return d, f.Commit()
}

// inspected is what -o json and -o yaml print of a snapshot.
type inspected struct {
	snapshots.Description
	File string `json:"file"`
}

func snapshotList() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the snapshots of a cluster",
		Long:    "List the snapshots in the directory of a cluster's snapshots, the newest first, without reading all of them.",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			ofCluster := dir == ""
			if ofCluster {
				if dir, err = snapshotDir(cmd); err != nil {
					return err
				}
			}
			all, err := snapshots.List(dir)
			if err != nil && !(ofCluster && errors.Is(err, fs.ErrNotExist)) { // the first snapshot makes it
				return err
			}
			if printed, err := asObject(cmd); err != nil {
				return err
			} else if printed {
				for _, s := range all {
					if err := encode(cmd, s); err != nil {
						return err
					}
				}
				return nil
			}
			if len(all) == 0 {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "no snapshots in %s\n", dir)
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 3, ' ', 0)
			_, _ = fmt.Fprintln(w, "FILE\tCLUSTER\tREVISION\tSIZE\tTIME\tREMARK")
			for _, s := range all {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", s.File, orDash(s.Cluster), orDash(s.Revision), s.Size, s.Time.UTC().Format(time.RFC3339), s.Remark)
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the snapshots (default: that of the cluster)")
	return cmd
}

// snapshotDir returns the directory of the snapshots of the cluster that the global flags name.
func snapshotDir(cmd *cobra.Command) (string, error) {
	p, _, _, err := found(cmd)
	if err == nil {
		err = checkNoMember(p)
	}
	if err != nil {
		return "", err
	}
	hintOther(cmd, p)
	switch has, err := p.Holds(); {
	case err != nil:
		return "", err
	case !has:
		return "", fmt.Errorf("there is no cluster %s in %s%s", p.Name, p.DataDir, others(p))
	}
	return p.SnapshotDir()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func snapshotInspect() *cobra.Command {
	var keys snapshots.Keys
	cmd := &cobra.Command{
		Use:   "inspect FILE|-",
		Short: "Check a snapshot and show what is in it",
		Long:  "Read all of a snapshot, check it and show what is in it. If it is damaged, the error says where and the exit code is 1.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKeys(keys); err != nil {
				return err
			}
			in, end, err := openSnapshot(cmd, args[0])
			if err != nil {
				return err
			}
			defer end()
			d, err := snapshots.Inspect(in, keys)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if printed, err := asObject(cmd); printed || err != nil {
				return errors.Join(err, encode(cmd, inspected{d, args[0]}))
			}
			return printSnapshot(cmd.OutOrStdout(), d)
		},
	}
	keysFlags(cmd.Flags(), &keys)
	return cmd
}

func printSnapshot(out io.Writer, d snapshots.Description) error {
	secrets := "encrypted with the keys of the cluster"
	switch {
	case d.Sealed:
		secrets = "in the encrypted file"
	case d.Open():
		secrets = "plain: everyone who can read the file can read them"
	}
	keys := "no"
	switch {
	case d.Keys && d.Open():
		keys = "yes, and everyone who can read the file is an administrator of the cluster"
	case d.Keys:
		keys = "yes"
	}
	s := d.ClusterSettings()
	nodes := "real"
	if s.Simulated() {
		nodes = "simulated"
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, line := range [][2]string{
		{"cluster", d.Cluster},
		{"cluster ID", d.ClusterID},
		{"revision", fmt.Sprint(d.Revision)},
		{"time", d.Time.Format(time.RFC3339)},
		{"objects", fmt.Sprintf("%d, %d bytes%s", d.Records, d.Bytes, leftOut(d))},
		{"Secrets", secrets},
		{"keys of the cluster", keys},
		{"nodes", nodes},
		{"networks", fmt.Sprintf("pods %s, services %s", s.Pods, s.Services)},
		{"program", fmt.Sprintf("%s, Kubernetes %s", d.Version, d.API)},
		{"SHA-256", d.SHA256},
	} {
		_, _ = fmt.Fprintf(w, "%s:\t%s\n", line[0], line[1])
	}
	return w.Flush()
}

// openSnapshot opens a regular file, or standard input. Opening another one, such as a named pipe without a writer, might
// never return.
func openSnapshot(cmd *cobra.Command, name string) (in io.Reader, end func(), err error) {
	if name == "-" {
		return cmd.InOrStdin(), func() {}, nil
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, nil, err
	case info.IsDir():
		return nil, nil, fmt.Errorf("%s is a directory, not a snapshot", name)
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s is not a regular file: pass a file, or - to read the snapshot from standard input", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil
}

// A source has the flags of a snapshot that a cluster is made from.
type source struct {
	origin
	file string
}

func (s *source) flags(f *pflag.FlagSet) {
	f.StringVar(&s.file, "from", "", "make a new, independent cluster with the objects of a snapshot: a file, or - for standard input")
	s.origin.flags(f)
}

// check says that flags have no effect without --from.
func (s *source) check(cmd *cobra.Command) error {
	if s.file == "" && s.origin != (origin{}) {
		return exit.Usage(cmd.CommandPath(), errors.New("--passphrase-file, --key-file, --decryption-keys: must be passed with --from"))
	}
	return nil
}

// maker returns the function that makes the data of the cluster, or nil without --from.
func (s *source) maker(cmd *cobra.Command, asked local.Settings) func(local.Profile) error {
	if s.file == "" {
		return nil
	}
	return func(p local.Profile) error {
		if err := checkKeys(s.keys); err != nil {
			return err
		}
		in, end, err := openSnapshot(cmd, s.file)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		defer end()
		if err := s.restore(cmd, p, asked, in); err != nil {
			return fmt.Errorf("--from: %s: %w", s.file, err)
		}
		return nil
	}
}

// restore makes the data of an independent cluster.
func (o *origin) restore(cmd *cobra.Command, p local.Profile, asked local.Settings, in io.Reader) error {
	r := o.restoration(p, settled(cmd, p, asked))
	r.Independent = true
	_, err := snapshots.Restore(cmd.Context(), in, r)
	return err
}

// origin has the flags of the keys of a snapshot.
type origin struct {
	keys       snapshots.Keys
	decryption string
}

func (o *origin) flags(f *pflag.FlagSet) {
	keysFlags(f, &o.keys)
	f.StringVar(&o.decryption, "decryption-keys", "", "file with the keys of the Secrets in the snapshot: pki/encryption.yaml of the cluster that it is of (default: that of the cluster of the same name on this machine)")
}

// restoration returns the description of a cluster. The keys of Secrets may be found in a cluster of this machine.
func (o *origin) restoration(p local.Profile, settings func(snapshots.Description) (local.Settings, error)) snapshots.Restoration {
	r := snapshots.Restoration{Profile: p, Keys: o.keys, Decryption: o.decryption}
	r.Settings = settings
	if o.decryption == "" {
		r.FindKeys = func(name string) string {
			clusters, _ := p.Clusters() // one that cannot be read has no keys for this
			for _, c := range clusters {
				if c.Name == name {
					if _, err := os.Stat(c.EncryptionKeys()); err == nil {
						return c.EncryptionKeys()
					}
				}
			}
			return ""
		}
	}
	return r
}

func snapshotRestore() *cobra.Command {
	var (
		from  origin
		fresh bool
		force bool
		s     local.Settings
	)
	cmd := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Make a cluster from a snapshot, or put one back",
		Long: "Make the data of a cluster from a snapshot; `sampan up` then starts it. If the snapshot has keys (save --with-keys), it is the\n" +
			"same cluster for its clients; otherwise, and with --new-keys, it is an independent one with a new ID, certificate authority and\n" +
			"keys. A cluster of that name must not exist. With --force a stopped cluster is put back to a snapshot of itself: it keeps its\n" +
			"keys and settings, and its earlier store as store.replaced in the data directory.",
		Example: "  sampan snapshot restore /backup/edge.age --passphrase-file=/root/passphrase --name=edge\n  sampan snapshot restore nightly.snapshot --name=copy\n  sampan down && sampan snapshot restore nightly.snapshot --force",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKeys(from.keys); err != nil {
				return err
			}
			if force && fresh {
				return errors.New("--force and --new-keys: pass one of them, because a cluster that is put back keeps its keys")
			}
			if force {
				if name := changedOf(cmd.Flags()); name != "" {
					return exit.Usage(cmd.CommandPath(), fmt.Errorf("--force and --%s: pass one of them, because a cluster that is put back keeps its settings", name))
				}
			}
			in, end, err := openSnapshot(cmd, args[0])
			if err != nil {
				return err
			}
			defer end()
			p, exists, err := restorable(cmd, force)
			if err != nil {
				return err
			}
			o := from.restoration(p, settled(cmd, p, s))
			o.Independent = fresh
			var r snapshots.Result
			if exists {
				r, err = snapshots.Replace(cmd.Context(), in, o)
			} else if r, err = snapshots.Restore(cmd.Context(), in, o); err == nil {
				err = p.Record()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s has revision %d of %s: %s. Start it with %s\n", p.Name, r.Revision, r.Cluster, resultOf(r), hint(cmd, "up"))
			if name := changedOf(cmd.Flags()); name != "" && r.Same {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: --%s had no effect: a cluster with the keys of the snapshot has its settings as well; pass it to `sampan up`, or --new-keys here\n", name)
			}
			if !exists {
				err = errors.Join(err, warnOfOriginal(cmd, p))
			}
			return err
		},
	}
	from.flags(cmd.Flags())
	cmd.Flags().BoolVar(&fresh, "new-keys", false, "make an independent cluster even if the snapshot has keys")
	cmd.Flags().BoolVar(&force, "force", false, "put back an existing, stopped cluster")
	settingsFlags(cmd, &s)
	hideAll(cmd.Flags(), "simulated-nodes", "service-network", "pod-network")
	return cmd
}

// warnOfOriginal prints that the original of a restored cluster is on this machine, so that the start is refused.
func warnOfOriginal(cmd *cobra.Command, p local.Profile) error {
	err := p.CheckCopy()
	if original, ok := errors.AsType[*local.CopyError](err); ok {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: the original is on this machine, and a start is refused as long as it is: %v; for an independent cluster, restore with --new-keys\n", original)
	}
	return err
}

// changedOf returns the name of a flag of settings that was passed, or "".
func changedOf(f *pflag.FlagSet) (name string) {
	var s local.Settings
	all := &cobra.Command{}
	settingsFlags(all, &s)
	all.Flags().VisitAll(func(one *pflag.Flag) {
		if f.Changed(one.Name) {
			name = one.Name
		}
	})
	return name
}

// hideAll hides the flags of settings that are not about a snapshot.
func hideAll(f *pflag.FlagSet, but ...string) {
	var s local.Settings
	kept := &cobra.Command{}
	settingsFlags(kept, &s)
	kept.Flags().VisitAll(func(one *pflag.Flag) {
		if !slices.Contains(but, one.Name) {
			f.Lookup(one.Name).Hidden = true
		}
	})
}

// restorable returns the cluster that a snapshot is restored to, and whether it exists. It must not run.
func restorable(cmd *cobra.Command, force bool) (p local.Profile, exists bool, err error) {
	p, i, running, err := found(cmd)
	if err != nil {
		return p, false, err
	}
	if err := checkNoMember(p); err != nil {
		return p, false, err
	}
	stop := "sampan down" + p.NameFlag()
	switch {
	case running:
		return p, false, fmt.Errorf("cluster %s is running; stop it with `%s`; nothing was changed", p.Name, stop)
	case i.Exists():
		return p, false, fmt.Errorf("cluster %s is not running, but has left pods or a state file; clean up with `%s`; nothing was changed", p.Name, stop)
	}
	holds, err := p.Holds()
	if foreign, ok := errors.AsType[*local.ForeignError](err); ok {
		return p, false, fmt.Errorf("%w and is not empty; pass an empty or new directory with --data-dir", foreign)
	}
	switch {
	case err != nil:
		return p, false, err
	case holds && !force:
		return p, false, fmt.Errorf("cluster %s exists, with its data in %s: pass another --name; or --force, if the snapshot is one of this cluster and the cluster shall be put back; nothing was changed", p.Name, p.DataDir)
	case force && !holds:
		return p, false, fmt.Errorf("--force: cluster %s does not exist", p.Name)
	}
	return p, holds, nil
}

// resultOf describes a restored cluster.
func resultOf(r snapshots.Result) string {
	text := fmt.Sprintf("%d objects", r.Records)
	if r.Same {
		return text + ", with its keys"
	}
	text += ", with new keys"
	if r.Dropped > 0 {
		text += fmt.Sprintf("; %d left out, which a new cluster makes itself or cannot use (%s)", r.Dropped, leftOutKinds(r.DroppedOf))
	}
	if r.Pending > 0 {
		text += fmt.Sprintf("; %d pods and claims begin again", r.Pending)
	}
	return text
}

// leftOutKinds lists how many objects of each resource were left out, the most first.
func leftOutKinds(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var all []string
	for _, name := range names {
		short, _, _ := strings.Cut(name, ".")
		all = append(all, fmt.Sprintf("%d %s", counts[name], short))
	}
	return strings.Join(all, ", ")
}

// settled returns the settings of an independent cluster: the ones of the command line, and otherwise those of the
// snapshot that its objects depend on.
func settled(cmd *cobra.Command, p local.Profile, asked local.Settings) func(snapshots.Description) (local.Settings, error) {
	return func(d snapshots.Description) (local.Settings, error) {
		return p.Settle(inherit(cmd, asked, d.ClusterSettings()), nil)
	}
}

// inherit completes settings by the ones of the cluster of a snapshot. Whether nodes are simulated comes from the
// snapshot, unless flags say it; --simulated-nodes=0 means a real node.
func inherit(cmd *cobra.Command, asked, from local.Settings) local.Settings {
	if !asked.Simulated() && !cmd.Flags().Changed("simulated-nodes") {
		asked.SimulatedNodes, asked.SimulatedNodeFile = from.SimulatedNodes, from.SimulatedNodeFile
	}
	if asked.Simulated() && from.Simulated() {
		// The networks are imagined, and the nodes are those of the snapshot.
		if asked.NodeName == "" {
			asked.NodeName = from.NodeName
		}
		if !asked.Pods.IsValid() {
			asked.Pods = from.Pods
		}
		if !asked.Services.IsValid() {
			asked.Services = from.Services
		}
	} else if asked.IPFamily == "" && !asked.Services.IsValid() && !asked.Pods.IsValid() {
		asked.IPFamily = from.Services.Family()
	}
	if asked.ClusterDomain == "" {
		asked.ClusterDomain = from.ClusterDomain
	}
	if asked.Controllers == "" {
		asked.Controllers = from.Controllers
	}
	if asked.EventTTL == 0 {
		asked.EventTTL = from.EventTTL
	}
	return asked
}
