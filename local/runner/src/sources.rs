//! Which other objects does a pod lean on, and what do they hold?

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, EnvVarSource, PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod, Secret, ServiceAccount,
    Volume,
};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

/// The keys and values of a Secret or ConfigMap.
pub type Data = BTreeMap<String, Vec<u8>>;

/// A token's life where a projected volume names none: Kubernetes' default.
const TOKEN_SECS: i64 = 3600;

/// What was found; a name that is absent here was absent there.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub secrets: BTreeMap<String, Data>,
    pub config_maps: BTreeMap<String, Data>,
    /// The directory of each claim.
    pub claims: BTreeMap<String, PathBuf>,
    pub tokens: BTreeMap<TokenWanted, String>,
}

/// A ServiceAccount token that a projected volume asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenWanted {
    pub audience: Option<String>,
    pub expiration_secs: i64,
}

/// The names a pod mentions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub secrets: BTreeSet<String>,
    pub config_maps: BTreeSet<String>,
    pub claims: BTreeSet<String>,
    pub tokens: BTreeSet<TokenWanted>,
}

/// What a pod mentions: pure, so that one read per object suffices for all its containers.
pub fn wanted(pod: &Pod) -> Wanted {
    let mut wanted = Wanted::default();
    let Some(spec) = &pod.spec else { return wanted };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for from in container.env_from.iter().flatten() {
            wanted.config_maps.extend(from.config_map_ref.iter().map(|r| r.name.clone()));
            wanted.secrets.extend(from.secret_ref.iter().map(|r| r.name.clone()));
        }
        let sources = container.env.iter().flatten().filter_map(|var| var.value_from.as_ref());
        for EnvVarSource { config_map_key_ref, secret_key_ref, .. } in sources {
            wanted.config_maps.extend(config_map_key_ref.iter().map(|r| r.name.clone()));
            wanted.secrets.extend(secret_key_ref.iter().map(|r| r.name.clone()));
        }
    }
    spec.volumes.iter().flatten().for_each(|volume| wanted_by_volume(volume, &mut wanted));
    wanted
}

pub(crate) fn token_wanted(audience: Option<&String>, expiration_secs: Option<i64>) -> TokenWanted {
    TokenWanted {
        audience: audience.filter(|a| !a.is_empty()).cloned(),
        expiration_secs: expiration_secs.unwrap_or(TOKEN_SECS),
    }
}

fn wanted_by_volume(volume: &Volume, wanted: &mut Wanted) {
    wanted.config_maps.extend(volume.config_map.iter().map(|v| v.name.clone()));
    wanted.secrets.extend(volume.secret.iter().filter_map(|v| v.secret_name.clone()));
    wanted.claims.extend(volume.persistent_volume_claim.iter().map(|v| v.claim_name.clone()));
    for part in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
        wanted.config_maps.extend(part.config_map.iter().map(|v| v.name.clone()));
        wanted.secrets.extend(part.secret.iter().map(|v| v.name.clone()));
        let tokens = part.service_account_token.iter();
        wanted.tokens.extend(tokens.map(|t| token_wanted(t.audience.as_ref(), t.expiration_seconds)));
    }
}

/// Reads what a pod mentions. Absent objects are absent in the answer; other errors are the caller's to retry.
pub(crate) async fn collect(client: &Client, pod: &Pod, claims: &ClaimStore) -> Result<Sources, kube::Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let wanted = wanted(pod);
    let mut found = Sources::default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    for name in wanted.secrets {
        if let Some(secret) = secrets.get_opt(&name).await? {
            let data = secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect();
            found.secrets.insert(name, data);
        }
    }
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    for name in wanted.config_maps {
        if let Some(map) = config_maps.get_opt(&name).await? {
            let text = map.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.into_bytes()));
            let binary = map.binary_data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0));
            found.config_maps.insert(name, text.chain(binary).collect());
        }
    }
    for name in wanted.claims {
        if let Some(directory) = claims.bind(client, &namespace, &name).await? {
            found.claims.insert(name, directory);
        }
    }
    for wanted in wanted.tokens {
        let token = request_token(client, pod, &namespace, &wanted).await?;
        found.tokens.insert(wanted, token);
    }
    Ok(found)
}

async fn request_token(
    client: &Client,
    pod: &Pod,
    namespace: &str,
    wanted: &TokenWanted,
) -> Result<String, kube::Error> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let account = account.unwrap_or_else(|| "default".to_owned());
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(wanted.audience.iter().cloned().collect()),
            bound_object_ref: Some(k8s_openapi::api::authentication::v1::BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
            expiration_seconds: Some(wanted.expiration_secs),
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer = accounts.create_token_request(&account, &PostParams::default(), &request).await?;
    Ok(answer.status.and_then(|status| status.token).unwrap_or_default())
}

/// Claims are directories, one per claim's UID: a claim made anew under an old name finds nothing of the old.
#[derive(Clone, Debug)]
pub(crate) struct ClaimStore {
    pub(crate) directory: PathBuf,
    /// Those that stand for directories elsewhere, by `namespace/name`.
    pub(crate) given: BTreeMap<String, PathBuf>,
}

impl ClaimStore {
    /// The claim's directory, with the claim marked `Bound`. `None`: there is no such claim.
    async fn bind(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PathBuf>, kube::Error> {
        if let Some(given) = self.given.get(&format!("{namespace}/{name}")) {
            return Ok(Some(given.clone()));
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let Some(claim) = api.get_opt(name).await? else { return Ok(None) };
        let Some(uid) = claim.uid() else { return Ok(None) };
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
            let spec = claim.spec.unwrap_or_default();
            let status = PersistentVolumeClaimStatus {
                phase: Some("Bound".to_owned()),
                access_modes: spec.access_modes,
                capacity: spec.resources.and_then(|resources| resources.requests),
                ..PersistentVolumeClaimStatus::default()
            };
            let patch = json!({"metadata": {"uid": uid}, "status": status});
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok(Some(self.directory.join(uid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_that_names_an_object_is_seen() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": {
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s1"}}, {"configMapRef": {"name": "c1"}}]}],
            "containers": [{"name": "m", "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}},
            ]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "s3"}},
                {"name": "b", "configMap": {"name": "c3"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "p"}},
                {"name": "d", "projected": {"sources": [
                    {"secret": {"name": "s4"}}, {"configMap": {"name": "c4"}},
                    {"serviceAccountToken": {"path": "token", "audience": "x", "expirationSeconds": 600}},
                ]}},
            ],
        }}))
        .unwrap();
        let names = |prefix: &str, n: usize| (1..=n).map(|i| format!("{prefix}{i}")).collect::<BTreeSet<_>>();
        let token = TokenWanted { audience: Some("x".to_owned()), expiration_secs: 600 };
        let expect = Wanted {
            secrets: names("s", 4),
            config_maps: names("c", 4),
            claims: BTreeSet::from(["p".to_owned()]),
            tokens: BTreeSet::from([token]),
        };
        assert_eq!(wanted(&pod), expect);
    }
}
