//! HTTP/1.1 heads, answers and targets.
