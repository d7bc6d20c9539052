//! The world in one thread: store, machines, faults, clock, seed and oracles.
