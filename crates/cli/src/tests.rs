//! Is the command line sound, and is what users see as it was recorded?

mod surface;

use super::*;

#[test]
fn the_command_line_is_one_that_can_be_parsed() {
    <Cli as clap::CommandFactory>::command().debug_assert();
}
