//! How does a container prove to the API server who it is?
//!
//! As on a cluster: a token of its ServiceAccount, the server's certificate and its namespace lie where every client
//! library looks for them, unless the pod or its account does not want that. Kubernetes writes the volume into the pod
//! when it is created; here it is added when the pod starts, so that a pod that was given to the API reads as it was given.

use k8s_openapi::api::core::v1::{Pod, ServiceAccount, Volume, VolumeMount};
use serde_json::json;

/// Where client libraries look.
const DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// No volume of a pod is called so by accident.
const VOLUME: &str = "kube-api-access-pawl";
/// A token's life. It is not renewed while a container runs, so it must outlast a run: a day, the longest a job here is
/// meant to take.
const TOKEN_SECS: i64 = 86_400;

/// The pod with its account's volume in it, if it is to have one.
pub(crate) fn with_access(pod: &Pod, account: Option<&ServiceAccount>) -> Pod {
    let mut pod = pod.clone();
    let (Some(spec), Some(account)) = (&mut pod.spec, account) else { return pod };
    let wanted = spec.automount_service_account_token.or(account.automount_service_account_token);
    if wanted == Some(false) {
        return pod;
    }
    let mount =
        VolumeMount { name: VOLUME.to_owned(), mount_path: DIRECTORY.to_owned(), ..VolumeMount::default() };
    let mut used = false;
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let mounts = container.volume_mounts.get_or_insert_default();
        if mounts.iter().all(|other| other.mount_path.trim_end_matches('/') != DIRECTORY) {
            mounts.push(VolumeMount { read_only: Some(true), ..mount.clone() });
            used = true;
        }
    }
    if used {
        spec.volumes.get_or_insert_default().extend(volume());
    }
    pod
}

fn volume() -> Option<Volume> {
    let volume = json!({"name": VOLUME, "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECS}},
        {"configMap": {"name": "kube-root-ca.crt", "optional": true, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}});
    serde_json::from_value(volume).ok()
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "a literal at the call reads best without a reference")]
mod tests {
    use super::*;
    use serde_json::Value;

    fn mounted(pod: Value, account: Option<Value>) -> (Vec<usize>, usize) {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": pod})).unwrap();
        let account = account.map(|account| serde_json::from_value(account).unwrap());
        let spec = with_access(&pod, account.as_ref()).spec.unwrap();
        let mounts = spec.containers.iter().map(|c| c.volume_mounts.as_ref().map_or(0, Vec::len)).collect();
        (mounts, spec.volumes.map_or(0, |volumes| volumes.len()))
    }

    #[test]
    fn a_pod_gets_its_accounts_token_unless_somebody_does_not_want_it() {
        let one = json!({"containers": [{"name": "a"}]});
        let with = |automount: Value| json!({"containers": [{"name": "a"}], "automountServiceAccountToken": automount});
        let account = |automount: Value| Some(json!({"automountServiceAccountToken": automount}));
        assert_eq!(mounted(one.clone(), account(json!(null))), (vec![1], 1));
        assert_eq!(mounted(one.clone(), account(json!(false))), (vec![0], 0));
        assert_eq!(mounted(with(json!(true)), account(json!(false))), (vec![1], 1));
        assert_eq!(mounted(with(json!(false)), account(json!(true))), (vec![0], 0));
        assert_eq!(mounted(one, None), (vec![0], 0));
    }

    #[test]
    fn a_container_that_brings_its_own_keeps_it() {
        let own = json!({"name": "a", "volumeMounts": [{"name": "v", "mountPath": format!("{DIRECTORY}/")}]});
        let pod = json!({"containers": [own, {"name": "b"}], "volumes": [{"name": "v", "emptyDir": {}}]});
        assert_eq!(mounted(pod, Some(json!({}))), (vec![1, 1], 2));
        assert!(volume().is_some());
    }
}
