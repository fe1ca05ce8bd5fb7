package openapi

// refs returns references to parameters of components.
func refs(names ...string) []*parameter {
	ps := make([]*parameter, len(names))
	for i, n := range names {
		ps[i] = &parameter{Ref: "#/components/parameters/" + n}
	}
	return ps
}

// parameters returns the parameters that operations refer to, by name.
func parameters() map[string]*parameter {
	text, truth, number := &model{Type: "string"}, &model{Type: "boolean"}, &model{Type: "integer"}
	ps := map[string]*parameter{}
	add := func(name string, schema *model, description string) {
		ps[name] = &parameter{Name: name, In: "query", Description: description, Schema: schema}
	}
	add("allowWatchBookmarks", truth, "Request events of type BOOKMARK, which have only the resource version that has been reached.")
	add("continue", text, "Continue a list that was cut by limit: the token from the metadata of the previous answer.")
	add("dryRun", text, "With the value All the request is processed fully, but its result is not stored.")
	add("fieldManager", text, "The name of the field manager that makes the change.")
	add("fieldSelector", text, "Restrict the list to objects with these values of fields.")
	add("gracePeriodSeconds", number, "The grace period in seconds before the object is deleted; 0 means at once.")
	add("labelSelector", text, "Restrict the list to objects with these labels.")
	add("limit", number, "The largest number of objects to return; the answer has a token to continue with.")
	add("orphanDependents", truth, "Deprecated: use propagationPolicy.")
	add("pretty", text, "With the value true the answer is indented.")
	add("propagationPolicy", text, "How dependents are deleted: Orphan, Background or Foreground.")
	add("resourceVersion", text, "The resource version of the answer; resourceVersionMatch defines how it is used.")
	add("resourceVersionMatch", text, "How resourceVersion is used: Exact or NotOlderThan.")
	add("sendInitialEvents", truth, "Begin a watch with events for all existing objects.")
	add("timeoutSeconds", number, "How long a list, a watch or a blocking read (until) may last.")
	add("until", text, "Wait until this CEL expression over the object holds (for a list: for each of them), and answer then. With NAME: before it the outcome is named in the header Sampan-Until; given several times, the first that becomes true is the answer. For a list, any: before the expression waits for one object only.")
	add("untilMissing", text, "What a blocking read does while no object exists: fail, wait or done.")
	add("watch", truth, "Watch for changes instead of listing.")
	ps["namespace"] = &parameter{Name: "namespace", In: "path", Description: "object name and auth scope, such as for teams and projects", Required: true, Schema: text}
	ps["name"] = &parameter{Name: "name", In: "path", Description: "name of the object", Required: true, Schema: text}
	ps["path"] = &parameter{Name: "path", In: "path", Description: "path to the resource", Required: true, Schema: text}
	return ps
}

func fieldValidation() *parameter {
	return &parameter{
		Name:        "fieldValidation",
		In:          "query",
		Description: "What to do about unknown and duplicate fields: Ignore, Warn or Strict.",
		Schema:      &model{Type: "string"},
	}
}

func logParameters() []*parameter {
	text, truth, number := &model{Type: "string"}, &model{Type: "boolean"}, &model{Type: "integer"}
	query := func(name string, schema *model, description string) *parameter {
		return &parameter{Name: name, In: "query", Description: description, Schema: schema}
	}
	return []*parameter{
		query("container", text, "The container whose log is returned. Required if the pod has several."),
		query("follow", truth, "Follow the log until the container ends."),
		query("limitBytes", number, "The largest number of bytes to return."),
		query("previous", truth, "Return the log of the previous container."),
		query("sinceSeconds", number, "Return only lines of the last so many seconds."),
		query("sinceTime", text, "Return only lines since this time (RFC 3339)."),
		query("stream", text, "All, Stdout or Stderr."),
		query("tailLines", number, "Return only so many lines from the end."),
		query("timestamps", truth, "Begin each line with its time (RFC 3339)."),
	}
}

// streamParameters are the options of a connection to containers.
func streamParameters(subresource string) []*parameter {
	text, truth := &model{Type: "string"}, &model{Type: "boolean"}
	query := func(name string, schema *model, description string) *parameter {
		return &parameter{Name: name, In: "query", Description: description, Schema: schema}
	}
	streams := []*parameter{
		query("container", text, "The container. Required if the pod has several."),
		query("stderr", truth, "Connect the standard error."),
		query("stdin", truth, "Connect the standard input."),
		query("stdout", truth, "Connect the standard output."),
		query("tty", truth, "Allocate a terminal for the command."),
	}
	switch subresource {
	case "exec":
		return append([]*parameter{query("command", text, "A word of the command; may be repeated.")}, streams...)
	case "attach":
		return streams
	case "portforward":
		return []*parameter{query("ports", &model{Type: "integer"}, "The ports, for WebSocket without SPDY.")}
	}
	return nil
}

// force is a parameter of patches alone.
func force() *parameter {
	return &parameter{
		Name: "force", In: "query", Schema: &model{Type: "boolean"},
		Description: "Take over fields that other managers own. Only for server-side apply (application/apply-patch+yaml).",
	}
}
