// Package codec turns API objects into bytes and back, each object once per encoding however many
// requests need it.
//
// An [Item] is one state of one object as the store keeps it. It is made with its protobuf bytes,
// which are also the record on disk; its decoded form is made when it is first needed, and kept.
// Its encodings are shared by all requests at about the same time (the writer, the disk and the
// watchers), then dropped, and kept when they are requested repeatedly. Most objects are written
// and never read in encoded form, since the parts of this program share the decoded object, and
// keeping each encoding would add a quarter to the memory of a cluster. The revision is known only
// after the commit, when the bytes exist already, so it is put in by splicing
// ([Item.AppendProtobuf], [SpliceJSON]) and never by encoding again. A list is a concatenation of
// such bytes, and a watch event is a frame around them.
//
//	E1  The values of an Item are shared by all callers and are never changed.
//	E2  The bytes with the revision spliced in decode to the same object with
//	    that revision as its resourceVersion, in both encodings.
//	E3  Two items with equal saved bytes are equal objects: the encoder writes maps
//	    in key order.
//	E4  Whatever an Item holds, every encoding can carry (see typedjson.Normalize). A body
//	    or a stored record with any other value is refused with the path of its field.
//
// An object without a Go type, a custom resource, has JSON as its only encoding, which is also its record on disk; its item
// keeps that instead of the object. [Shown] makes of it the form in the kind's definition.
//
// On disk any other object is the Kubernetes protobuf envelope: "k8s\x00" and a runtime.Unknown that names
// the kind.
//
// The other half of the package is for request bodies and for answers that are not stored objects:
// media types are negotiated ([Negotiate]), bodies decoded with strict, warning or ignoring field
// validation ([Decode]), and status objects, tables and views encoded ([Encode]). CBOR is not
// supported.
package codec
