//! As whom does a container run?
//!
//! The pod says it, else the image does, by number or by a name of its own `/etc/passwd`; else it is root. The words of
//! refusals are a kubelet's.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::env::ConfigError;
use crate::status::full_name;

/// The users and groups that an image knows: its `/etc/passwd` and `/etc/group`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub passwd: String,
    pub group: String,
}

/// Whom a container's processes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: u32,
    pub group: u32,
    /// Without `group`, sorted.
    pub groups: Vec<u32>,
    /// From the image's accounts.
    pub home: Option<String>,
}

/// Whom an engine is told to run a container as. It knows the image's accounts: names are its to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `user` or `user:group`; empty: as the image says.
    pub user: String,
    /// Sorted.
    pub groups: Vec<u32>,
}

/// What an image says about its user.
#[derive(Clone, Copy, Debug)]
pub struct ImageUser<'a> {
    /// `user` or `user:group`, names or numbers; empty: nothing is said.
    pub user: &'a str,
    pub accounts: &'a Accounts,
}

/// Whom a container runs as.
pub(crate) fn resolve(
    pod: &Pod,
    spec: &PodSpec,
    container: &Container,
    image: ImageUser<'_>,
) -> Result<Identity, ConfigError> {
    let (image_user, image_group) = image.user.split_once(':').unwrap_or((image.user, ""));
    let (run_as_user, run_as_group) = wanted(pod, spec, container, image_user)?;
    let account = match run_as_user {
        Some(user) => image.accounts.by_number(number(user)?),
        None if image_user.is_empty() => image.accounts.by_number(0),
        None => match image_user.parse() {
            Ok(user) => image.accounts.by_number(user),
            Err(_) => image.accounts.by_name(image_user).ok_or_else(|| no_user(image_user))?,
        },
    };
    let group = match run_as_group {
        Some(group) => number(group)?,
        // The image's group goes with the image's user.
        None if run_as_user.is_none() && !image_group.is_empty() => {
            image.accounts.group(image_group).ok_or_else(|| no_group(image_group))?
        }
        None => account.group,
    };
    let groups = groups(spec)?.into_iter().filter(|other| *other != group).collect();
    Ok(Identity { user: account.user, group, groups, home: account.home })
}

/// Whom an engine is told to run a container as.
pub(crate) fn asked(
    pod: &Pod,
    spec: &PodSpec,
    container: &Container,
    image_user: &str,
) -> Result<Asked, ConfigError> {
    let (image_user, _) = image_user.split_once(':').unwrap_or((image_user, ""));
    let (user, group) = wanted(pod, spec, container, image_user)?;
    let user = match (user.map(number).transpose()?, group.map(number).transpose()?) {
        (Some(user), Some(group)) => format!("{user}:{group}"),
        (Some(user), None) => user.to_string(),
        (None, Some(group)) if image_user.is_empty() => format!("0:{group}"),
        (None, Some(group)) => format!("{image_user}:{group}"),
        (None, None) => String::new(),
    };
    Ok(Asked { user, groups: groups(spec)? })
}

/// `runAsUser` and `runAsGroup`; whether they may be root is settled.
fn wanted(
    pod: &Pod,
    spec: &PodSpec,
    container: &Container,
    image_user: &str,
) -> Result<(Option<i64>, Option<i64>), ConfigError> {
    let (own, shared) = (container.security_context.as_ref(), spec.security_context.as_ref());
    let user = own.and_then(|s| s.run_as_user).or(shared.and_then(|s| s.run_as_user));
    let group = own.and_then(|s| s.run_as_group).or(shared.and_then(|s| s.run_as_group));
    let non_root = own.and_then(|s| s.run_as_non_root).or(shared.and_then(|s| s.run_as_non_root));
    if non_root == Some(true) {
        verify_non_root(pod, container, user, image_user)?;
    }
    Ok((user, group))
}

/// The groups that a pod asks for besides the first.
fn groups(spec: &PodSpec) -> Result<Vec<u32>, ConfigError> {
    let shared = spec.security_context.as_ref();
    let supplemental = shared.iter().flat_map(|s| s.supplemental_groups.iter().flatten()).copied();
    let mut groups = supplemental.chain(fs_group(spec)).map(number).collect::<Result<Vec<_>, _>>()?;
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

/// The group that volumes are given to.
pub(crate) fn fs_group(spec: &PodSpec) -> Option<i64> {
    spec.security_context.as_ref()?.fs_group
}

/// As kubelet's `verifyRunAsNonRoot`: what cannot be known counts as root.
fn verify_non_root(
    pod: &Pod,
    container: &Container,
    run_as_user: Option<i64>,
    image_user: &str,
) -> Result<(), ConfigError> {
    let (pod, container) = (full_name(pod), container.name.clone());
    match (run_as_user, image_user.parse::<u32>()) {
        (Some(0), _) => Err(ConfigError::RunAsUserIsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, Ok(0)) => Err(ConfigError::RunAsRoot { pod, container }),
        (None, Ok(_)) => Ok(()),
        (None, Err(_)) if image_user.is_empty() => Err(ConfigError::RunAsRoot { pod, container }),
        (None, Err(_)) => Err(ConfigError::RunAsUnknown { user: image_user.to_owned(), pod, container }),
    }
}

/// One line of `/etc/passwd`.
struct Account {
    user: u32,
    group: u32,
    home: Option<String>,
}

impl Accounts {
    /// A number that no line has is still a user, of root's group, as container runtimes have it.
    fn by_number(&self, user: u32) -> Account {
        let known = self.lines(|_, number| number == user);
        known.unwrap_or(Account { user, group: 0, home: None })
    }

    fn by_name(&self, name: &str) -> Option<Account> {
        self.lines(|own, _| own == name)
    }

    fn lines(&self, wanted: impl Fn(&str, u32) -> bool) -> Option<Account> {
        self.passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let (name, user) = (*fields.first()?, fields.get(2)?.parse().ok()?);
            let account = || {
                let home = fields.get(5).filter(|home| !home.is_empty());
                Some(Account {
                    user,
                    group: fields.get(3)?.parse().ok()?,
                    home: home.map(|h| (*h).to_owned()),
                })
            };
            if wanted(name, user) { account() } else { None }
        })
    }

    fn group(&self, group: &str) -> Option<u32> {
        let named = |line: &str| {
            let mut fields = line.split(':');
            (fields.next()? == group).then_some(())?;
            fields.nth(1)?.parse().ok()
        };
        group.parse().ok().or_else(|| self.group.lines().find_map(named))
    }
}

fn number(value: i64) -> Result<u32, ConfigError> {
    // What the API server lets through: 0 to 2³¹ − 1.
    u32::try_from(value).map_err(|_| ConfigError::User { user: value.to_string(), file: "securityContext" })
}

fn no_user(user: &str) -> ConfigError {
    ConfigError::User { user: user.to_owned(), file: "passwd" }
}

fn no_group(group: &str) -> ConfigError {
    ConfigError::User { user: group.to_owned(), file: "group" }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "a literal at the call reads best without a reference")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(pod: Value, own: Value, user: &str) -> Result<(u32, u32, Vec<u32>, Option<String>), String> {
        let accounts = Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\napp:x:7:8::/srv/app:/bin/sh\nbad:line\n".to_owned(),
            group: "staff:x:50:app\n".to_owned(),
        };
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"securityContext": pod, "containers": [{"name": "m", "securityContext": own}]}
        }))
        .unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let found = resolve(&pod, spec, &spec.containers[0], ImageUser { user, accounts: &accounts });
        found.map(|i| (i.user, i.group, i.groups, i.home)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_container_says_it_before_the_pod_and_the_pod_before_the_image() {
        let root = || Some("/root".to_owned());
        let app = || Some("/srv/app".to_owned());
        let none = || json!(null);
        let table = [
            (none(), none(), "", (0, 0, vec![], root())),
            (none(), none(), "app", (7, 8, vec![], app())),
            (none(), none(), "app:staff", (7, 50, vec![], app())),
            (none(), none(), "app:1", (7, 1, vec![], app())),
            (none(), none(), "7", (7, 8, vec![], app())),
            (none(), none(), "1234", (1234, 0, vec![], None)),
            (json!({"runAsUser": 7}), none(), "root:staff", (7, 8, vec![], app())),
            (json!({"runAsUser": 1000}), json!({"runAsUser": 7}), "", (7, 8, vec![], app())),
            (json!({"runAsGroup": 3}), none(), "app", (7, 3, vec![], app())),
            (
                json!({"fsGroup": 9, "supplementalGroups": [5, 9, 8]}),
                none(),
                "app",
                (7, 8, vec![5, 9], app()),
            ),
        ];
        for (pod, own, user, expect) in table {
            assert_eq!(check(pod.clone(), own.clone(), user), Ok(expect), "{pod} {own} {user}");
        }
        assert!(check(json!({}), json!({}), "nobody").unwrap_err().contains("unable to find user nobody"));
        assert!(
            check(json!({}), json!({}), "app:nobody").unwrap_err().contains("unable to find user nobody")
        );
    }

    #[test]
    fn who_may_not_be_root_is_told_so_in_a_kubelets_words() {
        let strict = |user: Option<u32>, image: &str| {
            check(json!({"runAsNonRoot": true, "runAsUser": user}), json!({}), image).map(|found| found.0)
        };
        assert_eq!(strict(Some(7), ""), Ok(7));
        assert_eq!(strict(None, "7"), Ok(7));
        let place = "(pod: \"p_n(u)\", container: m)";
        for (user, image, words) in [
            (Some(0), "7", "container's runAsUser breaks non-root policy"),
            (None, "", "container has runAsNonRoot and image will run as root"),
            (None, "0", "container has runAsNonRoot and image will run as root"),
            (
                None,
                "app",
                "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
            ),
        ] {
            assert_eq!(strict(user, image), Err(format!("{words} {place}")), "{image}");
        }
    }
}
