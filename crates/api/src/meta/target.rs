//! What does a unit of work act on? One normalized string, so that two units that mean the same thing
//! compete for the same lock, however their authors spelled it.
//!
//! ```text
//! prod/deployment/web                      a namespaced object
//! node/worker-1                            a cluster-scoped object
//! prod/widget.example.com/w                a kind of another group
//! git:host/owner/repo//path#template@ref   a Workflow
//! item:ns/execution/name                   a DeployItem
//! ```
//!
//! **Kinds** are lower-case and singular. For the kinds in `KNOWN` the plural, the short name, CamelCase and
//! the group they belong to are all the same kind (`Deployments`, `deploy` and `deployment.apps` are
//! `deployment`), and their scope is checked. A kind that is not known is only lower-cased: whether `status`
//! is a plural cannot be told from the word.
//!
//! **Git** hosts, owners and repositories are lower-case, as GitHub compares them; paths, templates and refs
//! are not touched. `#`, `%` and control characters of a path are percent-encoded, so that it parses back.
//! `@default` is the default branch; a branch that is really called `default` is written `@:default` (a git
//! ref never holds a colon).

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use sha2::{Digest, Sha256};

use super::{Kind, names};

/// Git allows paths of 4,096 bytes, encoding may triple them, and the rest of a target is short.
pub const MAX_LEN: usize = 16 * 1024;

/// How many hex digits of a target's hash stand in lock names and labels.
const HASH_HEX: usize = 16;

const DEFAULT_REF: &str = "default";

/// What a unit acts on; always normalized.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub enum Target {
    Object(ObjectTarget),
    Git(GitTarget),
    Item(ItemTarget),
}

/// A Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectTarget {
    namespace: Option<String>,
    kind: String,
    group: Option<String>,
    name: String,
}

/// What a Workflow works on: one template's run of one path, on one ref.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GitTarget {
    host: String,
    owner: String,
    repository: String,
    path: String,
    template: String,
    reference: GitRef,
}

/// Whose commits queue behind each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GitRef {
    /// All commits of the default branch.
    Default,
    /// One other ref.
    Named(String),
}

/// One item of an Execution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemTarget {
    namespace: String,
    execution: String,
    name: String,
}

/// Why a text is not a target: what is wrong, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error(
        "target {0:?} has {1} part(s); write namespace/kind/name, or kind/name for a cluster-scoped kind"
    )]
    Parts(String, usize),
    #[error("target {target:?}: the {part} is empty; write {form}")]
    Empty { target: String, part: &'static str, form: &'static str },
    #[error("target {target:?}: the {part} {value:?} is not valid: {allowed}")]
    Invalid { target: String, part: &'static str, value: String, allowed: &'static str },
    #[error("target {target:?}: a {kind} is namespaced; write namespace/{kind}/name")]
    NeedsNamespace { target: String, kind: String },
    #[error("target {target:?}: a {kind} is cluster-scoped; write {kind}/name")]
    ClusterScoped { target: String, kind: String },
    #[error("target {0:?} is malformed; write git:host/owner/repository//path#template@ref")]
    Git(String),
    #[error("target {0:?} is malformed; write item:namespace/execution/name")]
    Item(String),
    #[error("a target of {0} bytes is too long; at most {MAX_LEN} are allowed")]
    TooLong(usize),
}

const OBJECT_FORM: &str = "namespace/kind/name, or kind/name for a cluster-scoped kind";
const GIT_FORM: &str = "git:host/owner/repository//path#template@ref";
const ITEM_FORM: &str = "item:namespace/execution/name";

impl Target {
    /// A Kubernetes object; `kind` may be `kind.group` and is normalized.
    pub fn object(namespace: Option<&str>, kind: &str, name: &str) -> Result<Self, ParseError> {
        let raw = match namespace {
            Some(namespace) => format!("{namespace}/{kind}/{name}"),
            None => format!("{kind}/{name}"),
        };
        ObjectTarget::new(&raw, namespace, kind, name).map(Self::Object)
    }

    /// An object of this kind.
    pub fn of_kind(kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Self, ParseError> {
        let word = match known(&kind.kind.to_lowercase(), Some(&kind.group)) {
            Some(known) => known.singular.to_owned(),
            None if kind.group.is_empty() => kind.kind.to_string(),
            None => format!("{}.{}", kind.kind, kind.group),
        };
        Self::object(namespace, &word, name)
    }

    /// What a Workflow works on. An empty path is the root, `.`.
    pub fn git(
        host: &str,
        owner: &str,
        repository: &str,
        path: &str,
        template: &str,
        reference: GitRef,
    ) -> Result<Self, ParseError> {
        let raw = format!("git:{host}/{owner}/{repository}//{path}#{template}@{reference}");
        GitTarget::new(&raw, [host, owner, repository, path, template], reference).map(Self::Git)
    }

    /// One item of an Execution.
    pub fn item(namespace: &str, execution: &str, name: &str) -> Result<Self, ParseError> {
        ItemTarget::new(&format!("item:{namespace}/{execution}/{name}"), namespace, execution, name)
            .map(Self::Item)
    }

    /// The name of the Lease that locks this target.
    pub fn lock_name(&self) -> String {
        format!("pawl-lock-{}", self.short_hash())
    }

    /// The first 16 hex digits of the SHA-256 of the normalized target: fits a label value.
    pub fn short_hash(&self) -> String {
        let mut hash = self.hash_hex();
        hash.truncate(HASH_HEX);
        hash
    }

    /// The whole SHA-256 of the normalized target, in hex.
    pub fn hash_hex(&self) -> String {
        hex::encode(Sha256::digest(self.to_string().as_bytes()))
    }

    /// The namespace the target is in, if it is in one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Object(object) => object.namespace(),
            Self::Git(_) => None,
            Self::Item(item) => Some(&item.namespace),
        }
    }

    pub fn as_object(&self) -> Option<&ObjectTarget> {
        match self {
            Self::Object(object) => Some(object),
            Self::Git(_) | Self::Item(_) => None,
        }
    }
}

impl ObjectTarget {
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Lower-case, singular.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The API group, where it is known or was written. `Some("")` is the core group.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref().or_else(|| known(&self.kind, None).map(|kind| kind.group))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn new(raw: &str, namespace: Option<&str>, kind: &str, name: &str) -> Result<Self, ParseError> {
        let check = Check { raw, form: OBJECT_FORM };
        check.filled(&[("namespace", namespace.unwrap_or("-")), ("kind", kind), ("name", name)])?;
        let (word, group) = match kind.split_once('.') {
            Some((word, group)) => (word.to_lowercase(), Some(group.to_lowercase())),
            None => (kind.to_lowercase(), None),
        };
        check.that("kind", kind, names::is_label(&word), "a kind is letters and digits, as Deployment")?;
        if let Some(group) = &group {
            let allowed = "a group is a DNS name in lower case, as apps or example.com";
            check.that("group", group, names::is_subdomain(group), allowed)?;
        }
        let allowed = "a namespace is at most 63 of a-z, 0-9 and -, alphanumeric at both ends";
        check.that(
            "namespace",
            namespace.unwrap_or_default(),
            namespace.is_none_or(names::is_label),
            allowed,
        )?;
        let allowed = "an object's name is at most 253 characters without /, %, spaces or control characters";
        check.that("name", name, is_object_name(name), allowed)?;
        let (word, group) = match known(&word, group.as_deref()) {
            None => (word, group),
            Some(known) => {
                let (target, kind) = (shown(raw), known.singular.to_owned());
                match (known.namespaced, namespace) {
                    (true, None) => return Err(ParseError::NeedsNamespace { target, kind }),
                    (false, Some(_)) => return Err(ParseError::ClusterScoped { target, kind }),
                    (true, Some(_)) | (false, None) => (kind, None),
                }
            }
        };
        Ok(Self { namespace: namespace.map(str::to_owned), kind: word, group, name: name.to_owned() })
    }
}

impl GitTarget {
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn template(&self) -> &str {
        &self.template
    }

    pub fn reference(&self) -> &GitRef {
        &self.reference
    }

    fn new(raw: &str, parts: [&str; 5], reference: GitRef) -> Result<Self, ParseError> {
        let [host, owner, repository, path, template] = parts;
        let check = Check { raw, form: GIT_FORM };
        check.filled(&[
            ("host", host),
            ("owner", owner),
            ("repository", repository),
            ("template", template),
        ])?;
        let repository = repository.to_lowercase();
        let repository = repository.strip_suffix(".git").unwrap_or(&repository);
        let (host, owner) = (host.to_lowercase(), owner.to_lowercase());
        let allowed = "no slashes, spaces, # or control characters";
        for (part, value) in [("host", host.as_str()), ("owner", &owner), ("repository", repository)] {
            check.that(part, value, is_word(value), allowed)?;
        }
        check.that(
            "template",
            template,
            names::is_subdomain(template),
            "a template is named by a DNS name",
        )?;
        if let GitRef::Named(name) = &reference {
            check.filled(&[("ref", name)])?;
            let allowed = "a git ref has no spaces, colons or control characters";
            let good = !name.chars().any(|c| c.is_control() || c == ' ' || c == ':');
            check.that("ref", name, good, allowed)?;
        }
        let target = Self {
            host,
            owner,
            repository: repository.to_owned(),
            path: clean_path(path),
            template: template.to_owned(),
            reference,
        };
        check.length(&Target::Git(target.clone()))?;
        Ok(target)
    }

    /// `rest` is what follows `git:`.
    fn parse(raw: &str, rest: &str) -> Result<Self, ParseError> {
        let malformed = || ParseError::Git(shown(raw));
        let (place, rest) = rest.split_once("//").ok_or_else(malformed)?;
        let (path, rest) = rest.split_once('#').ok_or_else(malformed)?;
        let (template, reference) = rest.split_once('@').ok_or_else(malformed)?;
        let [host, owner, repository]: [&str; 3] =
            place.split('/').collect::<Vec<_>>().try_into().map_err(|_| malformed())?;
        let path = decode(path).ok_or_else(malformed)?;
        let reference = match reference {
            DEFAULT_REF => GitRef::Default,
            named => GitRef::Named(named.strip_prefix(':').unwrap_or(named).to_owned()),
        };
        Self::new(raw, [host, owner, repository, &path, template], reference)
    }
}

impl ItemTarget {
    fn new(raw: &str, namespace: &str, execution: &str, name: &str) -> Result<Self, ParseError> {
        let check = Check { raw, form: ITEM_FORM };
        check.filled(&[("namespace", namespace), ("execution", execution), ("name", name)])?;
        let allowed = "a namespace is at most 63 of a-z, 0-9 and -, alphanumeric at both ends";
        check.that("namespace", namespace, names::is_label(namespace), allowed)?;
        check.that("execution", execution, names::is_subdomain(execution), "an Execution has a DNS name")?;
        check.that("name", name, !name.chars().any(char::is_control), "no control characters")?;
        let target =
            Self { namespace: namespace.to_owned(), execution: execution.to_owned(), name: name.to_owned() };
        check.length(&Target::Item(target.clone()))?;
        Ok(target)
    }
}

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(raw: &str) -> Result<Self, ParseError> {
        if raw.len() > MAX_LEN {
            return Err(ParseError::TooLong(raw.len()));
        }
        if let Some(rest) = raw.strip_prefix("git:") {
            return GitTarget::parse(raw, rest).map(Self::Git);
        }
        if let Some(rest) = raw.strip_prefix("item:") {
            let [namespace, execution, name]: [&str; 3] = rest
                .splitn(3, '/')
                .collect::<Vec<_>>()
                .try_into()
                .map_err(|_| ParseError::Item(shown(raw)))?;
            return ItemTarget::new(raw, namespace, execution, name).map(Self::Item);
        }
        let parts: Vec<&str> = raw.split('/').collect();
        match parts.as_slice() {
            [kind, name] => ObjectTarget::new(raw, None, kind, name).map(Self::Object),
            [namespace, kind, name] => ObjectTarget::new(raw, Some(namespace), kind, name).map(Self::Object),
            other => Err(ParseError::Parts(shown(raw), other.len())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(ObjectTarget { namespace, kind, group, name }) => {
                if let Some(namespace) = namespace {
                    write!(f, "{namespace}/")?;
                }
                f.write_str(kind)?;
                if let Some(group) = group {
                    write!(f, ".{group}")?;
                }
                write!(f, "/{name}")
            }
            Self::Git(GitTarget { host, owner, repository, path, template, reference }) => {
                write!(f, "git:{host}/{owner}/{repository}//{}#{template}@{reference}", encode(path))
            }
            Self::Item(ItemTarget { namespace, execution, name }) => {
                write!(f, "item:{namespace}/{execution}/{name}")
            }
        }
    }
}

impl fmt::Display for GitRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT_REF),
            Self::Named(name) if name == DEFAULT_REF => write!(f, ":{name}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl JsonSchema for Target {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Target".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 3, "maxLength": MAX_LEN })
    }
}

/// What is being checked, for the error.
struct Check<'a> {
    raw: &'a str,
    form: &'static str,
}

impl Check<'_> {
    fn filled(&self, parts: &[(&'static str, &str)]) -> Result<(), ParseError> {
        match parts.iter().find(|(_, value)| value.is_empty()) {
            Some((part, _)) => Err(ParseError::Empty { target: shown(self.raw), part, form: self.form }),
            None => Ok(()),
        }
    }

    fn that(
        &self,
        part: &'static str,
        value: &str,
        good: bool,
        allowed: &'static str,
    ) -> Result<(), ParseError> {
        if good {
            return Ok(());
        }
        Err(ParseError::Invalid { target: shown(self.raw), part, value: shown(value), allowed })
    }

    fn length(&self, target: &Target) -> Result<(), ParseError> {
        match target.to_string().len() {
            len if len > MAX_LEN => Err(ParseError::TooLong(len)),
            _ => Ok(()),
        }
    }
}

/// Enough of a text to recognize it in an error.
fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}

/// What the API server accepts as a path segment, which is what all names are at least.
fn is_object_name(name: &str) -> bool {
    name.len() <= names::MAX_SUBDOMAIN
        && name != "."
        && name != ".."
        && !name.chars().any(|c| c == '/' || c == '%' || c.is_whitespace() || c.is_control())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| c == '/' || c == '#' || c.is_whitespace() || c.is_control())
}

/// `./a//b/` is `a/b`; nothing is `.`.
fn clean_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn encode(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if c == '%' || c == '#' || c.is_ascii_control() {
            out.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

fn decode(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let (high, low) = (char::from(rest.next()?), char::from(rest.next()?));
            bytes.push(u8::try_from(high.to_digit(16)? * 16 + low.to_digit(16)?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

struct Known {
    singular: &'static str,
    group: &'static str,
    namespaced: bool,
}

/// The known kind that a lower-case word names, if the group agrees.
fn known(word: &str, group: Option<&str>) -> Option<Known> {
    let find = |kinds: &'static [[&'static str; 4]], namespaced| {
        let [singular, .., group] = kinds.iter().find(|[singular, plural, short, of]| {
            (*singular == word || *plural == word || (*short == word && !word.is_empty()))
                && group.is_none_or(|group| group == *of)
        })?;
        Some(Known { singular, group, namespaced })
    };
    find(NAMESPACED, true).or_else(|| find(CLUSTER_SCOPED, false))
}

/// The kinds whose other spellings are understood, those of Kubernetes that remediations and manifests name: singular,
/// plural, short name and group.
const NAMESPACED: &[[&str; 4]] = &[
    ["pod", "pods", "po", ""],
    ["service", "services", "svc", ""],
    ["configmap", "configmaps", "cm", ""],
    ["secret", "secrets", "", ""],
    ["serviceaccount", "serviceaccounts", "sa", ""],
    ["persistentvolumeclaim", "persistentvolumeclaims", "pvc", ""],
    ["endpoints", "endpoints", "ep", ""],
    ["replicationcontroller", "replicationcontrollers", "rc", ""],
    ["resourcequota", "resourcequotas", "quota", ""],
    ["limitrange", "limitranges", "limits", ""],
    ["deployment", "deployments", "deploy", "apps"],
    ["statefulset", "statefulsets", "sts", "apps"],
    ["daemonset", "daemonsets", "ds", "apps"],
    ["replicaset", "replicasets", "rs", "apps"],
    ["job", "jobs", "", "batch"],
    ["cronjob", "cronjobs", "cj", "batch"],
    ["horizontalpodautoscaler", "horizontalpodautoscalers", "hpa", "autoscaling"],
    ["poddisruptionbudget", "poddisruptionbudgets", "pdb", "policy"],
    ["ingress", "ingresses", "ing", "networking.k8s.io"],
    ["networkpolicy", "networkpolicies", "netpol", "networking.k8s.io"],
    ["lease", "leases", "", "coordination.k8s.io"],
    ["role", "roles", "", "rbac.authorization.k8s.io"],
    ["rolebinding", "rolebindings", "", "rbac.authorization.k8s.io"],
];

/// Those of them that belong to no namespace.
const CLUSTER_SCOPED: &[[&str; 4]] = &[
    ["node", "nodes", "no", ""],
    ["namespace", "namespaces", "ns", ""],
    ["persistentvolume", "persistentvolumes", "pv", ""],
    ["clusterrole", "clusterroles", "", "rbac.authorization.k8s.io"],
    ["clusterrolebinding", "clusterrolebindings", "", "rbac.authorization.k8s.io"],
    ["storageclass", "storageclasses", "sc", "storage.k8s.io"],
    ["priorityclass", "priorityclasses", "pc", "scheduling.k8s.io"],
    ["ingressclass", "ingressclasses", "", "networking.k8s.io"],
    ["customresourcedefinition", "customresourcedefinitions", "crd", "apiextensions.k8s.io"],
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(raw: &str) -> String {
        raw.parse::<Target>().unwrap().to_string()
    }

    #[test]
    fn different_spellings_of_one_object_are_one_target() {
        for raw in [
            "prod/deployment/web",
            "prod/Deployment/web",
            "prod/deployments/web",
            "prod/deploy/web",
            "prod/Deployments.apps/web",
        ] {
            assert_eq!(normal(raw), "prod/deployment/web");
        }
        assert_eq!(normal("Nodes/worker-1"), "node/worker-1");
        assert_eq!(normal("no/worker-1"), "node/worker-1");
        assert_eq!(normal("prod/Widget.Example.com/w"), "prod/widget.example.com/w");
        assert_eq!(normal("prod/deployment.other.io/web"), "prod/deployment.other.io/web");
        assert_eq!(normal("clusterrole/system:node"), "clusterrole/system:node");
        let target: Target = "prod/po/web".parse().unwrap();
        assert_eq!(target.as_object().unwrap().group(), Some(""));
    }

    #[test]
    fn git_targets_are_compared_as_github_compares_them() {
        let target = normal("git:GitHub.com/Acme/Infra.git//./env//prod/#plan@default");
        assert_eq!(target, "git:github.com/acme/infra//env/prod#plan@default");
        assert_eq!(normal("git:h/o/r//#t@feature/X@1"), "git:h/o/r//.#t@feature/X@1");
        let odd = Target::git("h", "o", "r", "a#b/50%\n", "t", GitRef::Named("x#y".into())).unwrap();
        assert_eq!(odd.to_string(), "git:h/o/r//a%23b/50%25%0A#t@x#y");
        assert_eq!(odd.to_string().parse(), Ok(odd));
    }

    #[test]
    fn a_branch_called_default_does_not_share_the_default_branchs_lock() {
        let of = |reference| Target::git("h", "o", "r", ".", "t", reference).unwrap();
        let named = of(GitRef::Named("default".into()));
        assert_ne!(named.lock_name(), of(GitRef::Default).lock_name());
        assert_eq!(named.to_string().parse(), Ok(named));
    }

    #[test]
    fn errors_name_what_is_wrong_and_what_is_allowed() {
        for (raw, says) in [
            ("", "1 part(s); write namespace/kind/name"),
            ("web", "1 part(s)"),
            ("a/b/c/d", "4 part(s)"),
            ("/deployment/web", "the namespace is empty"),
            ("prod//web", "the kind is empty"),
            ("prod/deployment/", "the name is empty"),
            ("deployment/web", "a deployment is namespaced; write namespace/deployment/name"),
            ("prod/node/n", "a node is cluster-scoped; write node/name"),
            ("Prod/deployment/web", "the namespace \"Prod\" is not valid"),
            ("prod/dep loy/web", "the kind \"dep loy\" is not valid"),
            ("prod/deployment/a b", "the name \"a b\" is not valid"),
            ("git:h/o//p#t@r", "write git:host/owner/repository//path#template@ref"),
            ("git:h/o/r//p#t", "write git:host"),
            ("git:h/o/r//p#t@", "the ref is empty"),
            ("git:h/o/r//%zz#t@r", "write git:host"),
            ("item:ns/e", "write item:namespace/execution/name"),
            ("item:ns/e/", "the name is empty"),
        ] {
            let error = raw.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(says), "{raw:?} said {error}");
        }
    }

    #[test]
    fn the_lock_is_named_by_the_first_sixteen_digits_of_the_hash() {
        let target: Target = "prod/deploy/web".parse().unwrap();
        let digest = hex::encode(Sha256::digest(b"prod/deployment/web"));
        assert_eq!(target.lock_name(), format!("pawl-lock-{}", &digest[..16]));
        assert!(names::is_label_value(&target.short_hash()));
    }

    fn word() -> impl Strategy<Value = String> {
        proptest::collection::vec(proptest::char::range('a', 'z'), 1..12).prop_map(String::from_iter)
    }

    fn any_target() -> impl Strategy<Value = Target> {
        let kind = prop_oneof![Just("Deployments"), Just("sts"), Just("Widget.Example.com"), Just("gadget")];
        let object = (word(), kind, word())
            .prop_map(|(namespace, kind, name)| Target::object(Some(&namespace), kind, &name).unwrap());
        let reference = prop_oneof![
            Just(GitRef::Default),
            Just(GitRef::Named("default".into())),
            word().prop_map(GitRef::Named),
        ];
        let git = (word(), word(), word(), any::<String>(), word(), reference)
            .prop_map(|(h, o, r, path, t, reference)| Target::git(&h, &o, &r, &path, &t, reference).unwrap());
        let item = (word(), word(), word()).prop_map(|(ns, e, n)| Target::item(&ns, &e, &n).unwrap());
        prop_oneof![object, git, item]
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(target in any_target()) {
            let printed = target.to_string();
            let parsed: Target = printed.parse().unwrap();
            prop_assert_eq!(&parsed, &target);
            prop_assert_eq!(parsed.to_string(), printed);
            let json = serde_json::to_value(&target).unwrap();
            prop_assert_eq!(serde_json::from_value::<Target>(json).unwrap(), target);
        }

        #[test]
        fn hashes_are_equal_where_targets_are(a in any_target(), b in any_target()) {
            prop_assert_eq!(a == b, a.hash_hex() == b.hash_hex());
        }

        #[test]
        fn any_text_is_read_or_refused_and_reading_is_idempotent(
            raw in any::<String>(),
            prefix in prop_oneof![Just(""), Just("git:h/o/r//"), Just("item:a/"), Just("a/")],
        ) {
            if let Ok(target) = format!("{prefix}{raw}").parse::<Target>() {
                prop_assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
            }
        }
    }
}
