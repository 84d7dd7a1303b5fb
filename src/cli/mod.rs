//! Flags and the commands of a person.
