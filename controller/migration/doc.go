// Package migration is the controller of StorageVersionMigrations: it writes each object of a resource again, without a
// change, so that the store has it in the version and encoding of today.
package migration
