// Package events is what others have said of an object, in words: its conditions, and
// events about it.
//
//	T1  Everything here is a function of its arguments; nothing is asked of a server.
//	T2  Of an event only that is kept which a cause or a report needs, and of one
//	    object the newest few.
package events
