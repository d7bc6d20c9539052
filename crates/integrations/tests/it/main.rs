//! What is outside, tried over sockets and on an in-process API server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod webhook;
