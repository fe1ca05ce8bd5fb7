// Package events reads an object's conditions and the events about it, and formats them as text.
//
//	T1  All functions are pure; none calls a server.
//	T2  Only the fields of an event that a cause or a report needs are kept, and only the newest events per object.
package events
