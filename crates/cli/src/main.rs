//! `pawl`, the one executable: parse, then call.

fn main() {}
