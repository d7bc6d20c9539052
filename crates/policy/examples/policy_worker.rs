//! The hidden entry point alone, for tests that run real workers.

fn main() -> std::process::ExitCode {
    pawl_policy::worker_main()
}
