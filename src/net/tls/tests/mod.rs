//! TLS end to end in memory. Keys and ciphertext are random, lengths and outcomes are not.

mod configs;
mod connections;
mod refusals;
mod support;
