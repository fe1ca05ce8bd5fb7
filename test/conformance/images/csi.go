package images

// csiDriver is a program of ours with a CSI driver and the sidecars of which upstream has no stand-in.
const csiDriver = "csidriver"

// hostPathPlugin is the image of the driver, and the name of the program in it, which tests call.
const hostPathPlugin = "hostpathplugin"

// csiSidecars returns upstream's sidecars of CSI drivers. Each is the entry point of the image with its name.
func csiSidecars() []string {
	return []string{"csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"}
}

// csiStandIns returns the images of a CSI driver and its sidecars, if their programs were built.
func (s Sources) csiStandIns() (all []standIn) {
	if s.CSI == "" {
		return nil
	}
	for _, p := range csiSidecars() {
		all = append(all, standIn{[]string{p}, Config{Entrypoint: []string{"/" + p}}, []string{p}})
	}
	for image, command := range map[string]string{hostPathPlugin: "driver", "csi-node-driver-registrar": "registrar", "livenessprobe": "liveness"} {
		one := standIn{[]string{image}, Config{Entrypoint: []string{"/" + csiDriver, command}}, []string{"busybox", csiDriver}}
		if image == hostPathPlugin {
			one.layers = append(one.layers, hostPathPlugin)
		}
		all = append(all, one)
	}
	return all
}
