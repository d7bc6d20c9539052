//! The security settings of every Pod that Pawl creates: what its author left unset becomes safe.
//!
//! The defaults are those of the original documents: a user that is not root, the runtime's seccomp profile, no privilege
//! escalation, no capabilities. [`Hardening`] names the deliberate differences. Everything is built as JSON, so that
//! fields this version does not know reach the API server as they were written.

use serde_json::{Value, json};

use crate::json::{default, object};

/// How far a Pod is confined beyond what holds for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardening {
    /// The user and group of every container; `None` leaves them to the image.
    pub user: Option<i64>,
    pub group: Option<i64>,
    /// Whether containers may write to nothing but their volumes.
    pub read_only: bool,
}

impl Hardening {
    /// Images that users choose, run as an unprivileged user. Workspaces belong to the same id.
    pub const USER_IMAGE: Self = Self { user: Some(1000), group: None, read_only: false };
    /// Pawl's own image, which runs as `nonroot` and writes no file.
    pub const OWN_IMAGE: Self = Self { user: Some(65_532), group: Some(65_532), read_only: true };
    /// Images of container items choose their user themselves: many of Landscaper's need root in their container.
    pub const ANY_USER: Self = Self { user: None, group: None, read_only: false };

    /// Fills in a Pod's own security context.
    pub fn apply_to_pod(self, pod: &mut Value) {
        let context = object(pod, "securityContext");
        if let Some(user) = self.user {
            default(context, "runAsNonRoot", json!(true));
            default(context, "runAsUser", json!(user));
        }
        if let Some(group) = self.group {
            default(context, "runAsGroup", json!(group));
        }
        let seccomp = object(context, "seccompProfile");
        if seccomp.get("type").and_then(Value::as_str).is_none_or(str::is_empty) {
            seccomp["type"] = json!("RuntimeDefault");
        }
    }

    /// Fills in a container's security context.
    pub fn apply_to_container(self, container: &mut Value) {
        let context = object(container, "securityContext");
        // The API server refuses a container that is privileged and must not become so.
        if !is_true(context, "privileged") && !adds_sys_admin(context) {
            default(context, "allowPrivilegeEscalation", json!(false));
        }
        if self.read_only {
            default(context, "readOnlyRootFilesystem", json!(true));
        }
        let capabilities = object(context, "capabilities");
        if capabilities.get("drop").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            capabilities["drop"] = json!(["ALL"]);
        }
    }
}

fn adds_sys_admin(context: &Value) -> bool {
    let added = context.pointer("/capabilities/add").and_then(Value::as_array);
    added.into_iter().flatten().any(|added| *added == "SYS_ADMIN" || *added == "CAP_SYS_ADMIN")
}

pub(crate) fn is_true(holder: &Value, field: &str) -> bool {
    holder.get(field) == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unset_becomes_safe_and_what_is_set_stays() {
        let mut pod = json!({"securityContext": {"runAsUser": 7}});
        Hardening::USER_IMAGE.apply_to_pod(&mut pod);
        let expected =
            json!({"runAsNonRoot": true, "runAsUser": 7, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(pod["securityContext"], expected);
        let mut container = json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}});
        Hardening::USER_IMAGE.apply_to_container(&mut container);
        let expected = json!({"allowPrivilegeEscalation": false,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}});
        assert_eq!(container["securityContext"], expected);
    }

    #[test]
    fn the_differences_are_the_user_and_a_read_only_root() {
        let hardened = |hardening: Hardening| {
            let (mut pod, mut container) = (json!({}), json!({}));
            hardening.apply_to_pod(&mut pod);
            hardening.apply_to_container(&mut container);
            (pod["securityContext"].clone(), container["securityContext"]["readOnlyRootFilesystem"].clone())
        };
        let seccomp = json!({"type": "RuntimeDefault"});
        assert_eq!(hardened(Hardening::ANY_USER), (json!({"seccompProfile": seccomp}), Value::Null));
        let own =
            json!({"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": seccomp});
        assert_eq!(hardened(Hardening::OWN_IMAGE), (own, json!(true)));
    }
}
