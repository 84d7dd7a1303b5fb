//! Counters, histograms and the text format.
