//! Every decision, and nothing else: no clock, no client, no async, no randomness.
