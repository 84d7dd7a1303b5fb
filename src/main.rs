//! `tautline server|agent|demo|certs`.

fn main() {}
