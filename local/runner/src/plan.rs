//! What exactly is started for a container, and what lies in the pod's volumes?
//!
//! Pure: a pod and what it leans on go in, a plan so specific that carrying it out makes no choices comes out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, PodSpec, Volume, VolumeProjection,
};

use crate::beneath::{is_plain_absolute, is_plain_relative};
use crate::docker::EngineImage;
use crate::env::{self, ConfigError, Context};
use crate::identity::{self, Accounts, Identity, ImageUser};
use crate::images::{Image, WhyHost};
use crate::sources::{Data, Sources, token_wanted};
use pawl_api::meta::quantity::{UNIT, ceil_div, nano};

/// Where a container leaves its last words unless it says otherwise.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// The mode of files in Secret, ConfigMap, projected and downward volumes unless the volume says otherwise.
const DEFAULT_FILE_MODE: i32 = 0o644;

/// One container, ready to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub working_dir: String,
    pub mounts: Vec<Mount>,
    pub memory_bytes: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu_milli: Option<u64>,
    pub how: How,
    pub read_only_root: bool,
    pub termination_path: String,
    pub fallback_to_logs: bool,
    /// How the image wants to be asked to stop, such as `SIGQUIT`.
    pub stop_signal: Option<String>,
    /// To be masked in captured output (I6).
    pub secrets: Vec<String>,
}

/// How a container is run: what only that way needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// As a process of this machine, under numbers that are settled here.
    Process(Identity),
    /// By an engine.
    Engine(EngineTerms),
}

/// On which terms an engine runs a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineTerms {
    /// The very image that was looked at, whatever happens to its name.
    pub image: String,
    /// `user` or `user:group`; empty: as the image says.
    pub user: String,
    pub groups: Vec<u32>,
    pub capabilities_added: Vec<String>,
    pub capabilities_dropped: Vec<String>,
    /// A program may give its process more than it was started with; only where the container says so.
    pub may_escalate: bool,
}

/// One volume, or a part of it, seen by a container at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub volume: String,
    /// Relative, without `..`.
    pub sub_path: Option<PathBuf>,
    pub target: PathBuf,
    pub read_only: bool,
}

/// What a volume is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumePlan {
    Empty,
    Files(Vec<File>),
    Claim { directory: PathBuf, read_only: bool },
    Host(PathBuf),
}

/// A file in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Relative, without `..`.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub mode: u32,
}

/// Why a volume cannot be set up; retried, as a kubelet does, under the Event `FailedMount`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : secret \"{name}\" not found")]
    NoSecret { volume: String, name: String },
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : configmap \"{name}\" not found")]
    NoConfigMap { volume: String, name: String },
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : references non-existent {kind} key: {key}")]
    NoKey { volume: String, kind: &'static str, key: String },
    #[error("persistentvolumeclaim \"{name}\" not found")]
    NoClaim { name: String },
    #[error("volume \"{volume}\": hostPath is not allowed here (path \"{path}\")")]
    HostPath { volume: String, path: String },
    #[error("volume \"{volume}\": path \"{path}\" must be relative and without `..`")]
    Path { volume: String, path: String },
    #[error("volume \"{volume}\": unsupported field {field}")]
    Field { volume: String, field: String },
    #[error("volume \"{volume}\" is of a kind that is not served here")]
    Kind { volume: String },
}

/// Why a container cannot start at all, whatever is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Waiting with `CreateContainerConfigError`, retried.
    Config(ConfigError),
    /// The image gives no command, and neither does the container.
    NoCommand(String),
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// The plan for one container.
pub fn container(context: &Context<'_>, container: &Container, image: &Image) -> Result<Launch, Refusal> {
    let environment = env::resolve(context, container)?;
    let spec = context.pod.spec.clone().unwrap_or_default();
    let how = how(context, &spec, container, image)?;
    let of_image = image.config();
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let limit = |name: &str| limits.and_then(|limits| limits.get(name)).and_then(|q| nano(&q.0));
    let whole = |amount: i128, unit: i128| u64::try_from(ceil_div(amount, unit)).ok().filter(|n| *n > 0);
    let security = container.security_context.as_ref();
    Ok(Launch {
        argv: words(container, image, &environment.values)?,
        mounts: mounts(&spec, container, &environment.values)?,
        working_dir: working_dir(container, of_image.map_or("", |config| &config.working_dir))?,
        env: whole_env(context, image, &how, environment.values),
        memory_bytes: limit("memory").and_then(|amount| whole(amount, UNIT)),
        cpu_milli: limit("cpu").and_then(|amount| whole(amount, UNIT / 1000)),
        how,
        read_only_root: security.and_then(|s| s.read_only_root_filesystem).unwrap_or(false),
        termination_path: container
            .termination_message_path
            .clone()
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| TERMINATION_LOG.to_owned()),
        fallback_to_logs: falls_back(container),
        stop_signal: of_image.map(|config| config.stop_signal.clone()).filter(|name| !name.is_empty()),
        secrets: environment.secrets,
    })
}

/// Whether the end of the log may stand for last words.
pub(crate) fn falls_back(container: &Container) -> bool {
    container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError")
}

fn how(
    context: &Context<'_>,
    spec: &PodSpec,
    container: &Container,
    image: &Image,
) -> Result<How, ConfigError> {
    let nobody = Accounts::default();
    let image_user = match image {
        Image::Engine(engine) => return engine_terms(context, spec, container, engine).map(How::Engine),
        Image::Unpacked(image) => ImageUser { user: &image.config.user, accounts: &image.accounts },
        Image::Own { .. } | Image::Host(_) => ImageUser { user: "", accounts: &nobody },
    };
    identity::resolve(context.pod, spec, container, image_user).map(How::Process)
}

fn engine_terms(
    context: &Context<'_>,
    spec: &PodSpec,
    container: &Container,
    image: &EngineImage,
) -> Result<EngineTerms, ConfigError> {
    let security = container.security_context.as_ref();
    if security.and_then(|s| s.privileged) == Some(true) {
        return Err(ConfigError::Privileged(container.name.clone()));
    }
    let capabilities = security.and_then(|s| s.capabilities.clone()).unwrap_or_default();
    let asked = identity::asked(context.pod, spec, container, &image.config.user)?;
    Ok(EngineTerms {
        image: image.id.clone(),
        user: asked.user,
        groups: asked.groups,
        capabilities_added: capabilities.add.unwrap_or_default(),
        capabilities_dropped: capabilities.drop.unwrap_or_default(),
        may_escalate: security.and_then(|s| s.allow_privilege_escalation).unwrap_or(false),
    })
}

/// What runs: `command` and `args`, each else the image's; an image's arguments belong to its own command.
fn words(
    container: &Container,
    image: &Image,
    values: &BTreeMap<String, String>,
) -> Result<Vec<String>, Refusal> {
    let expand = |words: &[String]| words.iter().map(|w| env::expand(w, values)).collect::<Vec<_>>();
    let command = container.command.as_deref().unwrap_or_default();
    let args = container.args.as_deref().unwrap_or_default();
    let (entrypoint, image_args) = image.entrypoint();
    let argv = match (command.is_empty(), args.is_empty()) {
        (false, _) => [expand(command), expand(args)].concat(),
        (true, false) => [entrypoint, expand(args)].concat(),
        (true, true) => [entrypoint, image_args].concat(),
    };
    // Arguments alone are no command where it is not known what they would be given to.
    let unknown = command.is_empty() && matches!(image, Image::Host(_));
    if argv.is_empty() || unknown {
        return Err(Refusal::NoCommand(no_command(container, image)));
    }
    if let Some(index) = argv.iter().position(|word| word.contains('\0')) {
        return Err(ConfigError::Argument { container: container.name.clone(), index }.into());
    }
    Ok(argv)
}

fn working_dir(container: &Container, of_image: &str) -> Result<String, ConfigError> {
    let own = container.working_dir.as_deref().filter(|dir| !dir.is_empty());
    let path = own.or(Some(of_image).filter(|dir| !dir.is_empty())).unwrap_or("/").to_owned();
    if is_plain_absolute(Path::new(&path)) {
        return Ok(path);
    }
    Err(ConfigError::WorkingDir { container: container.name.clone(), path })
}

/// All that a process finds in its environment: what a container runtime sets, over it the image, over it the pod.
fn whole_env(
    context: &Context<'_>,
    image: &Image,
    how: &How,
    values: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let identity = match how {
        How::Process(identity) => identity,
        // The runtime is the engine, and it knows the image.
        How::Engine(_) => return values,
    };
    // Who has no line in an image's accounts is at home nowhere in it.
    let nowhere = image.unpacked().map(|_| "/".to_owned());
    let home = identity.home.clone().or(nowhere).map(|home| ("HOME".to_owned(), home));
    let runtime = context.runtime.iter().cloned().chain(home);
    let fit = |(name, value): &(String, String)| !name.is_empty() && !(name.clone() + value).contains('\0');
    runtime.chain(image.env().into_iter().filter(fit)).chain(values).collect()
}

/// The plan for all volumes of a pod.
pub fn volumes(
    context: &Context<'_>,
    allow_host_path: bool,
) -> Result<BTreeMap<String, VolumePlan>, VolumeError> {
    let volumes = context.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.map(|v| Ok((v.name.clone(), volume(context, v, allow_host_path)?))).collect()
}

fn no_command(container: &Container, image: &Image) -> String {
    let (name, called) = (&container.name, container.image.as_deref().unwrap_or_default());
    let why = match image {
        Image::Host(WhyHost::Unknown) => "is not known here",
        Image::Host(WhyHost::NoNamespaces) => "cannot be used, because this machine gives no namespaces",
        Image::Own { .. } | Image::Unpacked(_) | Image::Engine(_) => {
            return format!(
                "no command specified: neither container \"{name}\" nor image \"{called}\" has one"
            );
        }
    };
    format!(
        "container \"{name}\" has no command, and image \"{called}\" {why}: the host's files are used instead of \
         images, so `command` must be set"
    )
}

fn mounts(
    spec: &PodSpec,
    container: &Container,
    env: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, ConfigError> {
    let mut out = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let name = || container.name.clone();
        if !spec.volumes.iter().flatten().any(|volume| volume.name == mount.name) {
            return Err(ConfigError::NoVolume { container: name(), volume: mount.name.clone() });
        }
        let target = PathBuf::from(&mount.mount_path);
        if !is_plain_absolute(&target) || target == Path::new("/") {
            return Err(ConfigError::MountPath { container: name(), path: mount.mount_path.clone() });
        }
        let expanded = mount.sub_path_expr.as_ref().map(|text| env::expand(text, env));
        let sub_path = expanded.or_else(|| mount.sub_path.clone()).filter(|path| !path.is_empty());
        if let Some(path) = sub_path.as_ref().filter(|path| !is_plain_relative(Path::new(path))) {
            return Err(ConfigError::SubPath { container: name(), path: path.clone() });
        }
        out.push(Mount {
            volume: mount.name.clone(),
            sub_path: sub_path.map(PathBuf::from),
            target,
            read_only: mount.read_only.unwrap_or(false),
        });
    }
    // A mount inside another must come after it, or it would be hidden.
    out.sort_by_key(|mount| mount.target.components().count());
    Ok(out)
}

fn volume(context: &Context<'_>, volume: &Volume, allow_host_path: bool) -> Result<VolumePlan, VolumeError> {
    let named = &volume.name;
    let sources = context.sources;
    if volume.empty_dir.is_some() {
        return Ok(VolumePlan::Empty);
    }
    if let Some(v) = &volume.config_map {
        let data = sources.config_maps.get(&v.name);
        let missing = VolumeError::NoConfigMap { volume: named.clone(), name: v.name.clone() };
        let options = Keys { items: v.items.as_deref(), optional: v.optional, mode: v.default_mode };
        return keys(named, "config", data, missing, options).map(VolumePlan::Files);
    }
    if let Some(v) = &volume.secret {
        let name = v.secret_name.clone().unwrap_or_default();
        let data = sources.secrets.get(&name);
        let missing = VolumeError::NoSecret { volume: named.clone(), name };
        let options = Keys { items: v.items.as_deref(), optional: v.optional, mode: v.default_mode };
        return keys(named, "secret", data, missing, options).map(VolumePlan::Files);
    }
    if let Some(v) = &volume.persistent_volume_claim {
        let missing = || VolumeError::NoClaim { name: v.claim_name.clone() };
        let directory = sources.claims.get(&v.claim_name).cloned().ok_or_else(missing)?;
        return Ok(VolumePlan::Claim { directory, read_only: v.read_only.unwrap_or(false) });
    }
    if let Some(v) = &volume.projected {
        let mut files = Vec::new();
        for part in v.sources.iter().flatten() {
            files.extend(projection(context, named, part, v.default_mode)?);
        }
        return Ok(VolumePlan::Files(files));
    }
    if let Some(v) = &volume.downward_api {
        return downward(context, named, v.items.as_deref(), v.default_mode).map(VolumePlan::Files);
    }
    match &volume.host_path {
        Some(host) if allow_host_path => Ok(VolumePlan::Host(PathBuf::from(&host.path))),
        Some(host) => Err(VolumeError::HostPath { volume: named.clone(), path: host.path.clone() }),
        None => Err(VolumeError::Kind { volume: named.clone() }),
    }
}

/// How keys become files.
#[derive(Clone, Copy)]
struct Keys<'a> {
    items: Option<&'a [KeyToPath]>,
    optional: Option<bool>,
    mode: Option<i32>,
}

fn keys(
    volume: &str,
    kind: &'static str,
    data: Option<&Data>,
    missing: VolumeError,
    options: Keys<'_>,
) -> Result<Vec<File>, VolumeError> {
    let optional = options.optional == Some(true);
    let Some(data) = data else { return if optional { Ok(Vec::new()) } else { Err(missing) } };
    let Some(items) = options.items.filter(|items| !items.is_empty()) else {
        return data.iter().map(|(key, bytes)| file(volume, key, bytes.clone(), options.mode)).collect();
    };
    let mut files = Vec::new();
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => files.push(file(volume, &item.path, bytes.clone(), item.mode.or(options.mode))?),
            None if optional => {}
            None => {
                return Err(VolumeError::NoKey { volume: volume.to_owned(), kind, key: item.key.clone() });
            }
        }
    }
    Ok(files)
}

fn projection(
    context: &Context<'_>,
    volume: &str,
    part: &VolumeProjection,
    mode: Option<i32>,
) -> Result<Vec<File>, VolumeError> {
    let Sources { secrets, config_maps, tokens, .. } = context.sources;
    if let Some(v) = &part.config_map {
        let missing = VolumeError::NoConfigMap { volume: volume.to_owned(), name: v.name.clone() };
        let options = Keys { items: v.items.as_deref(), optional: v.optional, mode };
        return keys(volume, "config", config_maps.get(&v.name), missing, options);
    }
    if let Some(v) = &part.secret {
        let missing = VolumeError::NoSecret { volume: volume.to_owned(), name: v.name.clone() };
        let options = Keys { items: v.items.as_deref(), optional: v.optional, mode };
        return keys(volume, "secret", secrets.get(&v.name), missing, options);
    }
    if let Some(v) = &part.downward_api {
        return downward(context, volume, v.items.as_deref(), mode);
    }
    if let Some(v) = &part.service_account_token {
        let token = tokens.get(&token_wanted(v.audience.as_ref(), v.expiration_seconds)).cloned();
        return Ok(vec![file(volume, &v.path, token.unwrap_or_default().into_bytes(), mode)?]);
    }
    Err(VolumeError::Kind { volume: volume.to_owned() })
}

fn downward(
    context: &Context<'_>,
    volume: &str,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: Option<i32>,
) -> Result<Vec<File>, VolumeError> {
    let mut files = Vec::new();
    for item in items.unwrap_or_default() {
        let (value, field) = match (&item.field_ref, &item.resource_field_ref) {
            (Some(f), _) => (env::field(context, &f.field_path), f.field_path.clone()),
            (None, Some(r)) => (env::resource(context, None, r), r.resource.clone()),
            (None, None) => (None, item.path.clone()),
        };
        let value = value.ok_or(VolumeError::Field { volume: volume.to_owned(), field })?;
        files.push(file(volume, &item.path, value.into_bytes(), item.mode.or(mode))?);
    }
    Ok(files)
}

fn file(volume: &str, path: &str, bytes: Vec<u8>, mode: Option<i32>) -> Result<File, VolumeError> {
    if !is_plain_relative(Path::new(path)) {
        return Err(VolumeError::Path { volume: volume.to_owned(), path: path.to_owned() });
    }
    let mode = u32::try_from(mode.unwrap_or(DEFAULT_FILE_MODE) & 0o777).unwrap_or(0o600);
    Ok(File { path: PathBuf::from(path), bytes, mode })
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "a literal at the call reads best without a reference")]
mod tests {
    use super::*;
    use crate::env::Capacity;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    fn with<T>(pod: Value, f: impl FnOnce(&Context<'_>, &Container) -> T) -> T {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let data = |key: &str, value: &str| Data::from([(key.to_owned(), value.as_bytes().to_vec())]);
        let mut sources = Sources::default();
        sources.secrets.insert("s".to_owned(), data("k", "v"));
        sources.config_maps.insert("c".to_owned(), data("k", "v"));
        sources.claims.insert("p".to_owned(), PathBuf::from("claims/p"));
        sources.tokens.insert(token_wanted(None, None), "not-a-real-token".to_owned());
        let capacity = Capacity { cpus: 1, memory_bytes: 1, disk_bytes: 1 };
        let context =
            Context { pod: &pod, sources: &sources, node: "node", capacity, defaults: &[], runtime: &[] };
        f(&context, &pod.spec.as_ref().unwrap().containers[0])
    }

    fn plan(container: Value, image: Image) -> Result<Launch, Refusal> {
        let volumes = json!([{"name": "v", "emptyDir": {}}]);
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [container], "volumes": volumes}});
        with(pod, |context, c| super::container(context, c, &image))
    }

    #[test]
    fn words_are_expanded_once_and_never_split() {
        let launch = plan(
            json!({"name": "m", "command": ["sh", "-c"], "args": ["$(A)", "$$(A)", "$(B)"],
                "env": [{"name": "A", "value": "two words; $$(B)"}]}),
            Image::Host(WhyHost::Unknown),
        );
        assert_eq!(launch.unwrap().argv, ["sh", "-c", "two words; $(B)", "$(A)", "$(B)"]);
    }

    #[test]
    fn our_own_image_brings_its_entrypoint_and_a_foreign_one_none() {
        let own = Image::Own { executable: PathBuf::from("pawl") };
        let container = json!({"name": "m", "image": "x", "args": ["act"]});
        assert_eq!(plan(container.clone(), own.clone()).unwrap().argv, ["pawl", "act"]);
        let commanded = json!({"name": "m", "command": ["true"]});
        assert_eq!(plan(commanded, own).unwrap().argv, ["true"]);
        let Err(Refusal::NoCommand(message)) = plan(container, Image::Host(WhyHost::Unknown)) else {
            panic!("it has no command")
        };
        assert!(
            message.contains("\"m\"") && message.contains("\"x\"") && message.contains("command"),
            "{message}"
        );
    }

    #[test]
    fn no_mount_leaves_its_volume_or_hides_another() {
        let mount = |mount: Value| {
            let mounts = json!([{"name": "v", "mountPath": "/a/b"}, mount]);
            plan(
                json!({"name": "m", "command": ["x"], "volumeMounts": mounts}),
                Image::Host(WhyHost::Unknown),
            )
        };
        for bad in ["../x", "/etc", "a/../../x", ".."] {
            let refused = mount(json!({"name": "v", "mountPath": "/c", "subPath": bad})).unwrap_err();
            assert!(matches!(refused, Refusal::Config(ConfigError::SubPath { .. })), "{bad}");
        }
        for bad in ["/", "relative", "/a/../b"] {
            let refused = mount(json!({"name": "v", "mountPath": bad})).unwrap_err();
            assert!(matches!(refused, Refusal::Config(ConfigError::MountPath { .. })), "{bad}");
        }
        let refused = mount(json!({"name": "no", "mountPath": "/c"})).unwrap_err();
        assert!(matches!(refused, Refusal::Config(ConfigError::NoVolume { .. })));
        let sorted =
            mount(json!({"name": "v", "mountPath": "/a", "readOnly": true, "subPath": "s"})).unwrap();
        let targets: Vec<_> = sorted.mounts.iter().map(|m| m.target.to_str().unwrap()).collect();
        assert_eq!(targets, ["/a", "/a/b"]);
        assert!(sorted.mounts[0].read_only);
    }

    #[test]
    fn limits_and_security_are_read() {
        let launch = plan(
            json!({"name": "m", "command": ["x"], "resources": {"limits": {"memory": "64Mi", "cpu": "1.5"}},
                "securityContext": {"runAsUser": 1000, "readOnlyRootFilesystem": true},
                "terminationMessagePath": "/t", "terminationMessagePolicy": "FallbackToLogsOnError"}),
            Image::Host(WhyHost::Unknown),
        )
        .unwrap();
        assert_eq!((launch.memory_bytes, launch.cpu_milli), (Some(64 << 20), Some(1500)));
        let How::Process(identity) = &launch.how else { panic!("it is a process") };
        assert_eq!((identity.user, launch.read_only_root), (1000, true));
        assert_eq!((launch.termination_path.as_str(), launch.fallback_to_logs), ("/t", true));
        let root = plan(
            json!({"name": "m", "command": ["x"], "securityContext": {"runAsNonRoot": true}}),
            Image::Host(WhyHost::Unknown),
        );
        assert!(matches!(root, Err(Refusal::Config(ConfigError::RunAsRoot { .. }))));
    }

    fn volume(volume: Value) -> Result<VolumePlan, String> {
        let mut volume = volume;
        volume["name"] = json!("v");
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "labels": {"b": "2", "a": "\"1\""}},
            "spec": {"containers": [{"name": "m"}], "volumes": [volume]}});
        with(pod, |context, _| volumes(context, false))
            .map(|mut all| all.remove("v").unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn volumes_hold_what_their_sources_hold() {
        let files = |files: &[(&str, &str, u32)]| {
            let file = |(path, text, mode): &(&str, &str, u32)| File {
                path: PathBuf::from(path),
                bytes: text.as_bytes().to_vec(),
                mode: *mode,
            };
            Ok(VolumePlan::Files(files.iter().map(file).collect()))
        };
        let table = [
            (json!({"emptyDir": {}}), Ok(VolumePlan::Empty)),
            (json!({"secret": {"secretName": "s", "defaultMode": 0o400}}), files(&[("k", "v", 0o400)])),
            (
                json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "d/f", "mode": 0o600}]}}),
                files(&[("d/f", "v", 0o600)]),
            ),
            (json!({"configMap": {"name": "no", "optional": true}}), files(&[])),
            (
                json!({"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
                files(&[("l", "a=\"\\\"1\\\"\"\nb=\"2\"", 0o644)]),
            ),
            (
                json!({"projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}}, {"secret": {"name": "s"}},
                {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}}),
                files(&[("token", "not-a-real-token", 0o644), ("k", "v", 0o644), ("n", "n", 0o644)]),
            ),
            (
                json!({"persistentVolumeClaim": {"claimName": "p", "readOnly": true}}),
                Ok(VolumePlan::Claim { directory: PathBuf::from("claims/p"), read_only: true }),
            ),
        ];
        for (given, expect) in table {
            assert_eq!(volume(given.clone()), expect, "{given}");
        }
    }

    #[test]
    fn a_volume_that_cannot_be_says_why() {
        let table = [
            (json!({"secret": {"secretName": "no"}}), "secret \"no\" not found"),
            (
                json!({"configMap": {"name": "c", "items": [{"key": "no", "path": "f"}]}}),
                "references non-existent config key: no",
            ),
            (json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "../f"}]}}), "without `..`"),
            (json!({"persistentVolumeClaim": {"claimName": "no"}}), "persistentvolumeclaim \"no\" not found"),
            (json!({"hostPath": {"path": "/etc"}}), "hostPath is not allowed"),
            (json!({"nfs": {"server": "x", "path": "/"}}), "not served here"),
        ];
        for (given, part) in table {
            let error = volume(given.clone()).unwrap_err();
            assert!(error.contains(part), "{given}: {error}");
        }
    }
}
