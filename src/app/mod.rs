//! The only room that knows core and net.
