package openapi

// Enumerations returns the values of enumerations, by the name of their model.
func Enumerations() map[string][]string { return enums() }
