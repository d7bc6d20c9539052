//! Every scenario under faults, the promise that a seed decides everything, and the guards taken away one by one.

mod faults;
