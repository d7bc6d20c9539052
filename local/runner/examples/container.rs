//! The hidden entry point alone, for tests that run real containers.

fn main() -> std::process::ExitCode {
    pawl_runner::init_main(std::env::args_os().skip(1))
}
