//! What identifies a kind of object on the wire: where its URLs are and what its manifests say.
//!
//! `Kind` is data, so that the loop, the caches and the plans need not be generic over types.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use kube::Resource;
use serde::{Deserialize, Serialize};

/// A kind as an API server names it.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub kind: Cow<'static, str>,
    /// The lower-case plural of the URL.
    pub plural: Cow<'static, str>,
    pub namespaced: bool,
}

impl Kind {
    /// A kind known when the program is written.
    pub const fn of(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// The kind of a typed, namespaced resource.
    pub fn namespaced<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
            namespaced: true,
        }
    }

    /// `group/version`, or only the version for the core group, as manifests write it.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The URL path of the collection (`name` absent) or of one object.
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let (true, Some(namespace)) = (self.namespaced, namespace) {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    /// The same kind in any version: an owner reference may have been written against an older one.
    pub fn same_kind(&self, other: &Kind) -> bool {
        self.group == other.group && self.kind == other.kind
    }
}

/// Maps are full of kinds, and most of those that are compared are the same constant: then no letter is read.
impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        let by = |mine: &str, theirs: &str| {
            if std::ptr::eq(mine, theirs) { Ordering::Equal } else { mine.cmp(theirs) }
        };
        by(&self.group, &other.group)
            .then_with(|| by(&self.version, &other.version))
            .then_with(|| by(&self.kind, &other.kind))
            .then_with(|| by(&self.plural, &other.plural))
            .then_with(|| self.namespaced.cmp(&other.namespaced))
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        let same = |mine: &str, theirs: &str| std::ptr::eq(mine, theirs) || mine == theirs;
        // What tells kinds apart soonest comes first.
        same(&self.kind, &other.kind)
            && same(&self.group, &other.group)
            && same(&self.version, &other.version)
            && same(&self.plural, &other.plural)
            && self.namespaced == other.namespaced
    }
}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.kind, &self.group, &self.version).hash(state);
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        let job = Kind::of("batch", "v1", "Job", "jobs", true);
        assert_eq!(job.path(Some("a"), Some("b")), "/apis/batch/v1/namespaces/a/jobs/b");
        assert_eq!(job.path(None, None), "/apis/batch/v1/jobs");
        let node = Kind::of("", "v1", "Node", "nodes", false);
        assert_eq!(node.path(Some("ignored"), Some("n")), "/api/v1/nodes/n");
        assert_eq!((job.api_version(), node.api_version()), ("batch/v1".into(), "v1".into()));
    }

    #[test]
    fn kinds_are_the_same_wherever_their_letters_are() {
        let job = Kind::of("batch", "v1", "Job", "jobs", true);
        let read: Kind = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
        assert_eq!((&job, job.cmp(&read)), (&read, Ordering::Equal));
        let cron = Kind::of("batch", "v1", "CronJob", "cronjobs", true);
        assert_ne!(cron, job);
        assert_eq!((cron.cmp(&job), job.cmp(&cron)), (Ordering::Less, Ordering::Greater));
    }
}
