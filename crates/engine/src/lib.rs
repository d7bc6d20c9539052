//! The only loop: wake, observe, decide, apply, report.
