//! Does `pawl up --runner docker` run real images with a real engine? Where there is no engine, or nothing to make an image
//! of, there is nothing to test, and that is said.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::kubectl::Up;
use crate::{PAWL, pawl, text};

/// Made by this test, from nothing but one program.
const REPOSITORY: &str = "localhost/pawl-end-to-end";
const TAG: &str = "1";

/// A real engine that has our image.
struct Engine {
    socket: PathBuf,
    /// What DOCKER_HOST is for Pawl.
    host: String,
}

impl Engine {
    /// `None` where there is none, or no program that runs in an empty image.
    #[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
    fn find() -> Option<Self> {
        let named =
            std::env::var("DOCKER_HOST").ok().and_then(|host| Some(host.strip_prefix("unix://")?.into()));
        let usual = ["/var/run/docker.sock", "/run/podman/podman.sock"].map(PathBuf::from);
        let sockets = named.map_or(usual.to_vec(), |named| vec![named]);
        let Some(socket) = sockets.into_iter().find(|socket| UnixStream::connect(socket).is_ok()) else {
            eprintln!(
                "SKIPPED: no container engine listens on DOCKER_HOST or the usual sockets of this machine"
            );
            return None;
        };
        let Some(busybox) = static_busybox() else {
            eprintln!(
                "SKIPPED: there is no static busybox on this machine to make an image of (busybox-static)"
            );
            return None;
        };
        let engine = Self { host: format!("unix://{}", socket.display()), socket };
        engine.make_image(&busybox);
        Some(engine)
    }

    fn make_image(&self, busybox: &Path) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        std::fs::copy(busybox, root.path().join("bin/busybox")).unwrap();
        for program in ["sh", "sleep", "echo", "cat", "id", "hostname", "seq", "true"] {
            symlink("busybox", root.path().join("bin").join(program)).unwrap();
        }
        let tar = Command::new("tar").arg("-C").arg(root.path()).args(["-cf", "-", "."]).output().unwrap();
        assert!(tar.status.success(), "{}", text(&tar.stderr));
        let changes = "changes=ENTRYPOINT%20%5B%22sh%22%2C%22-c%22%5D";
        let made =
            self.ask("POST", &format!("/images/create?fromSrc=-&repo={REPOSITORY}&{changes}"), &tar.stdout);
        let id = made.split('"').find(|word| word.starts_with("sha256:")).unwrap_or_else(|| panic!("{made}"));
        self.ask("POST", &format!("/images/{id}/tag?repo={REPOSITORY}&tag={TAG}"), &[]);
    }

    /// Asks the engine, and takes no for no answer.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let head = format!(
            "{method} /v1.41{path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/x-tar\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = text(&answer);
        assert!(
            answer.split(' ').nth(1).is_some_and(|code| code.starts_with('2')),
            "{method} {path}: {answer}"
        );
        answer
    }

    /// The names of the containers of a pod.
    fn containers(&self, uid: &str) -> Vec<String> {
        let answer = self.ask("GET", "/containers/json?all=1", &[]);
        let list: Vec<Value> = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let of_pod = list.iter().filter(|container| container["Labels"]["dev.pawl.pod-uid"] == uid);
        of_pod.map(|container| container["Names"][0].as_str().unwrap().to_owned()).collect()
    }
}

/// A busybox that needs no library, if there is one.
fn static_busybox() -> Option<PathBuf> {
    let paths = ["/bin/busybox", "/usr/bin/busybox", "/bin/busybox.static", "/usr/bin/busybox-static"];
    let is_static = |path: &&PathBuf| {
        // The dynamic linker stands in the file of whoever needs it.
        std::fs::read(path).is_ok_and(|bytes| !bytes.windows(13).any(|part| part == b"/lib64/ld-lin"))
    };
    paths.map(PathBuf::from).iter().find(is_static).cloned()
}

fn job() -> String {
    let script = "echo begun >> /box/runs; for i in $(seq 1 8); do echo line $i; sleep 0.5; done; echo $(id -u):$(id -g); hostname; \
        echo \"$WHO in $PWD has $(cat /box/runs | busybox wc -l) run\"; \
        ls /var/run/secrets/kubernetes.io/serviceaccount >/dev/null && echo account; printf end > /dev/termination-log; exit 3";
    let script = script.replace("ls /var", "busybox ls /var");
    serde_json::json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "real"},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "hostname": "job-0",
            "initContainers": [{"name": "before", "image": format!("{REPOSITORY}:{TAG}"), "args": ["echo first > /box/before"],
                "volumeMounts": [{"name": "work", "mountPath": "/box"}]}],
            "containers": [{"name": "main", "image": format!("{REPOSITORY}:{TAG}"), "args": [script],
                "env": [{"name": "NAME", "value": "somebody"}, {"name": "WHO", "value": "$(NAME)"}],
                "workingDir": "/box", "volumeMounts": [{"name": "work", "mountPath": "/box"}],
                "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
                "securityContext": {"runAsUser": 1000, "runAsGroup": 5, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}}],
            "volumes": [{"name": "work", "emptyDir": {}}],
        }}},
    })
    .to_string()
}

fn server() -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server"},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "main", "image": format!("{REPOSITORY}:{TAG}"),
            "args": ["trap 'echo asked; exit 0' TERM; echo up; while true; do sleep 0.1; done"],
        }]},
    })
    .to_string()
}

#[test]
fn a_real_image_runs_once_though_pawl_is_killed_and_stops_when_it_is_asked() {
    let Some(engine) = Engine::find() else { return };
    let around = [("DOCKER_HOST", engine.host.as_str())];
    let Some(mut up) = Up::within(&around, &["--runner", "docker"]) else { return };
    assert_eq!(up.apply(&job()), "job.batch/real created\n");
    up.wait_for("pod", &["-l", "job-name=real"], "jsonpath={.status.phase}=Running");
    let uid = up.says(&["get", "pods", "-l", "job-name=real", "-o", "jsonpath={.items[0].metadata.uid}"]);
    // Wherever it is by now, it has begun; Pawl dies without a word, and the container goes on.
    up.kill_and_start_again(&around, &["--runner", "docker"]);
    let log = up.says(&["logs", "--follow", "job/real", "-c", "main"]);
    let lines: String = (1..=8).map(|n| format!("line {n}\n")).collect();
    assert_eq!(log, format!("{lines}1000:5\njob-0\nsomebody in /box has 1 run\naccount\n"));
    up.wait("job/real", "condition=failed");
    let state = up.says(&[
        "get",
        "pods",
        "-l",
        "job-name=real",
        "-o",
        "jsonpath={.items[*].status.containerStatuses[0].state.terminated}",
    ]);
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!((&state["exitCode"], &state["message"]), (&3.into(), &"end".into()), "{state}");
    assert_eq!(engine.containers(&uid), Vec::<String>::new());

    up.apply(&server());
    up.wait("pod/server", "condition=Ready");
    let uid = up.says(&["get", "pod", "server", "-o", "jsonpath={.metadata.uid}"]);
    assert_eq!(engine.containers(&uid).len(), 1);
    let follow = up.command(&["logs", "--follow", "server"]).stdout(Stdio::piped()).spawn().unwrap();
    up.says(&["delete", "pod", "server", "--grace-period=60"]);
    assert_eq!(text(&follow.wait_with_output().unwrap().stdout), "up\nasked\n");
    assert_eq!(engine.containers(&uid), Vec::<String>::new());
}

#[test]
fn a_runner_that_is_none_is_refused_with_those_there_are() {
    let home = tempfile::tempdir().unwrap();
    let output = pawl(home.path(), &["up", "--runner", "podmann"]);
    let complaint = text(&output.stderr);
    assert!(
        !output.status.success() && complaint.contains("process") && complaint.contains("docker"),
        "{complaint}"
    );
}

#[test]
fn without_an_engine_nothing_is_started_and_the_socket_is_named() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(PAWL);
    command.args(["up", "--runner", "docker", "--listen", "127.0.0.1:0", "--data-dir", "data"]);
    command.current_dir(home.path()).stdin(Stdio::null()).env_remove("PAWL_LOG");
    for (host, part) in [
        ("unix:///nowhere/engine.sock", "/nowhere/engine.sock: No such file or directory"),
        ("tcp://127.0.0.1:2375", "DOCKER_HOST is tcp://127.0.0.1:2375, and only unix:// is spoken here"),
    ] {
        let output = command.env("DOCKER_HOST", host).output().unwrap();
        let complaint = text(&output.stderr);
        assert!(!output.status.success() && complaint.contains(part), "{complaint}");
    }
    assert!(!home.path().join("data").exists());
}
