//! A PostgreSQL that lives as long as one test: a directory of its own, a socket in it, and nothing on the network.
//!
//! It runs as an ordinary user (PostgreSQL refuses root), under a shell that waits for this process: however the test
//! ends, the server ends with it.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Initializing takes a second, on a busy machine ten.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    directory: TempDir,
    binaries: PathBuf,
    user: Option<(u32, u32)>,
    /// More settings of the server.
    settings: Vec<String>,
    running: Option<(Child, Option<ChildStdin>)>,
}

impl Cluster {
    /// `None` only where somebody said that there is no PostgreSQL and that this is meant.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| Vec::new())
    }

    /// With settings that may name files made in the server's directory.
    pub(crate) fn start_with(prepare: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let Some(binaries) = binaries() else {
            assert!(
                std::env::var_os("PAWL_WITHOUT_POSTGRES").is_some(),
                "PostgreSQL's server (initdb, postgres) is not installed, so the ledger was not tested on it: run `make \
                 test`, which installs it, or say PAWL_WITHOUT_POSTGRES=1 if that is meant"
            );
            println!("PAWL_WITHOUT_POSTGRES is set: THE LEDGER WAS NOT TESTED ON POSTGRESQL");
            return None;
        };
        let directory = TempDir::with_prefix("pawl-pg-").unwrap();
        let user = is_root(directory.path()).then(unprivileged);
        if let Some((uid, gid)) = user {
            chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut cluster = Self { directory, binaries, user, settings: Vec::new(), running: None };
        let made = cluster
            .command("initdb")
            .args(["--no-sync", "--auth=trust", "--username=pawl", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(cluster.data())
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        cluster.settings = prepare(cluster.directory.path());
        if let Some((uid, gid)) = user {
            for entry in std::fs::read_dir(cluster.directory.path()).unwrap() {
                chown(entry.unwrap().path(), Some(uid), Some(gid)).unwrap();
            }
        }
        cluster.run();
        Some(cluster)
    }

    pub(crate) fn run(&mut self) {
        let mut command = self.shell();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take();
        self.running = Some((child, stdin));
        let started = Instant::now();
        while !self.answers() {
            assert!(started.elapsed() < PATIENCE, "PostgreSQL does not answer: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// As a machine that loses power: at once.
    pub(crate) fn stop(&mut self) {
        if let Some((mut child, stdin)) = self.running.take() {
            // The shell reads to the end of its input, then stops the server.
            if let Some(mut stdin) = stdin {
                let _ = stdin.flush();
            }
            let _ = child.wait();
        }
    }

    /// The URL of a database, which is made.
    pub(crate) fn database(&self, name: &str) -> String {
        let made = self.psql(&format!("CREATE DATABASE {name}"));
        assert!(made, "CREATE DATABASE {name}: {}", self.log());
        format!("postgres:///{name}?host={}&user=pawl", self.directory.path().display())
    }

    fn answers(&self) -> bool {
        self.psql("SELECT 1")
    }

    fn psql(&self, sql: &str) -> bool {
        let mut psql = self.command("psql");
        psql.args(["--no-psqlrc", "--quiet", "--username=pawl", "--dbname=postgres", "--host"]);
        psql.arg(self.directory.path()).args(["--command", sql]);
        if let Some(port) = self.settings.iter().find_map(|setting| setting.strip_prefix("port=")) {
            psql.args(["--port", port]);
        }
        psql.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.join(program));
        self.as_user(&mut command);
        command
    }

    fn as_user(&self, command: &mut Command) {
        command.current_dir(self.directory.path()).env("HOME", self.directory.path());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
    }

    fn shell(&self) -> Command {
        let script = r#""$@" >> log 2>&1 & server=$!; cat > /dev/null; kill -QUIT $server; wait $server"#;
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(self.binaries.join("postgres")).arg("-D").arg(self.data());
        shell.arg("-k").arg(self.directory.path());
        shell.args(["-c", "max_connections=20", "-c", "shared_buffers=16MB"]);
        if !self.settings.iter().any(|setting| setting.starts_with("listen_addresses")) {
            shell.args(["-c", "listen_addresses="]);
        }
        for setting in &self.settings {
            shell.args(["-c", setting]);
        }
        self.as_user(&mut shell);
        shell
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A private file, as PostgreSQL wants its key.
pub(crate) fn private(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn binaries() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Where Debian, Fedora and macOS keep them: not on the PATH.
    for (parent, inside) in [("/usr/lib/postgresql", "bin"), ("/usr", "bin"), ("/opt/homebrew/opt", "bin")] {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join(inside)).collect();
        found.sort();
        places.extend(found.into_iter().rev());
    }
    let has = |place: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|name| place.join(name).is_file());
    places.into_iter().find(has)
}

fn is_root(mine: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(mine).unwrap().uid() == 0
}

/// `postgres` where a package made that user, else `nobody`.
fn unprivileged() -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |user: &str| {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(user))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody")).expect("a user that is not root")
}
