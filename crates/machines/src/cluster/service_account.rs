//! What does every namespace come with? A ServiceAccount `default`, and the certificate by which the API server is known.

use k8s_openapi::api::core::v1::Namespace;
use pawl_api::k8s::{CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT};
use serde_json::{Value, json};

use crate::machine::{Description, Machine, Watch, Write};
use crate::object::{Key, Object};
use crate::plan::{Adopt, Plan, Step};
use crate::view::{Context, View};

const DEFAULT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const CERTIFICATE: &str = "ca.crt";

/// Gives every namespace its ServiceAccount `default`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceAccounts;

/// Gives every namespace the ConfigMap `kube-root-ca.crt`.
#[derive(Clone, Debug)]
pub struct RootCertificates {
    /// In PEM, as clients are to trust it.
    pub certificate: String,
}

impl Machine for ServiceAccounts {
    type Kind = Namespace;
    type Status = ();

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::other(SERVICE_ACCOUNT, home_of_account).metadata_only()],
            writes: vec![Write::main(SERVICE_ACCOUNT, &["create"])],
            ..Description::new("serviceaccount", NAMESPACE)
        }
    }

    fn reconcile(&self, cx: &Context<'_, Namespace>) -> Plan<()> {
        let namespace = cx.object.name();
        let found = cx.view.get(&SERVICE_ACCOUNT, &Key::new(Some(namespace), DEFAULT));
        if cx.object.is_deleting() || found.is_some() {
            return Plan::rest();
        }
        let manifest = json!({"metadata": {"name": DEFAULT, "namespace": namespace}});
        Plan::step(Step::Create { kind: SERVICE_ACCOUNT, manifest, adopt: Adopt::Anyones })
    }
}

impl Machine for RootCertificates {
    type Kind = Namespace;
    type Status = ();

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::other(CONFIG_MAP, home_of_certificate).named(ROOT_CA)],
            writes: vec![Write::main(CONFIG_MAP, &["create", "patch"])],
            ..Description::new("root-ca", NAMESPACE)
        }
    }

    fn reconcile(&self, cx: &Context<'_, Namespace>) -> Plan<()> {
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let namespace = cx.object.name();
        let data = json!({CERTIFICATE: self.certificate});
        let Some(found) = cx.view.get(&CONFIG_MAP, &Key::new(Some(namespace), ROOT_CA)) else {
            let about = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                         endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                         guaranteed across distributions of Kubernetes clusters.";
            let metadata = json!({"name": ROOT_CA, "namespace": namespace,
                "annotations": {"kubernetes.io/description": about}});
            let manifest = json!({"metadata": metadata, "data": data});
            return Plan::step(Step::Create { kind: CONFIG_MAP, manifest, adopt: Adopt::Anyones });
        };
        let told = found.raw().pointer("/data/ca.crt").and_then(Value::as_str);
        if told == Some(&self.certificate) {
            return Plan::rest();
        }
        Plan::step(Step::patch_unchanged(&found, json!({"data": data})))
    }
}

fn home_of_account(account: &Object, _: &dyn View) -> Vec<Key> {
    home(account, DEFAULT)
}

fn home_of_certificate(map: &Object, _: &dyn View) -> Vec<Key> {
    home(map, ROOT_CA)
}

/// The namespace of an object, if the object is the one that every namespace has.
fn home(object: &Object, name: &str) -> Vec<Key> {
    let home = object.namespace().filter(|_| object.name() == name);
    home.map(|home| Key::new(None, home)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::testing::Cluster;

    fn machines(certificate: &str) -> [AnyMachine; 2] {
        let certificate = certificate.to_owned();
        [AnyMachine::new(ServiceAccounts), AnyMachine::new(RootCertificates { certificate })]
    }

    fn cluster() -> Cluster {
        let namespaces =
            "---\nkind: Namespace\nmetadata: {name: a}\n---\nkind: Namespace\nmetadata: {name: b}\n";
        Cluster::of(&[NAMESPACE, SERVICE_ACCOUNT, CONFIG_MAP], namespaces)
    }

    #[test]
    fn every_namespace_has_its_account_and_the_certificate_and_gets_them_back() {
        let mut cluster = cluster();
        cluster.settle(&machines("pem"));
        for namespace in ["a", "b"] {
            assert!(cluster.get(&SERVICE_ACCOUNT, &Key::new(Some(namespace), "default")).is_some());
            let map = cluster.get(&CONFIG_MAP, &Key::new(Some(namespace), "kube-root-ca.crt")).unwrap();
            assert_eq!(map["data"], json!({"ca.crt": "pem"}));
        }
        cluster.delete(&SERVICE_ACCOUNT, &Key::new(Some("a"), "default"), "Background");
        cluster.settle(&machines("pem"));
        assert!(cluster.get(&SERVICE_ACCOUNT, &Key::new(Some("a"), "default")).is_some());
    }

    #[test]
    fn a_new_certificate_replaces_the_old_one() {
        let mut cluster = cluster();
        cluster.settle(&machines("old"));
        cluster.settle(&machines("new"));
        let map = cluster.get(&CONFIG_MAP, &Key::new(Some("a"), "kube-root-ca.crt")).unwrap();
        assert_eq!(map["data"], json!({"ca.crt": "new"}));
    }

    #[test]
    fn a_namespace_that_ends_is_given_nothing() {
        let mut cluster = cluster();
        cluster.edit(&NAMESPACE, &Key::new(None, "a"), &json!({"spec": {"finalizers": ["kubernetes"]}}));
        cluster.delete(&NAMESPACE, &Key::new(None, "a"), "Background");
        cluster.settle(&machines("pem"));
        assert!(cluster.get(&SERVICE_ACCOUNT, &Key::new(Some("a"), "default")).is_none());
        assert!(cluster.get(&SERVICE_ACCOUNT, &Key::new(Some("b"), "default")).is_some());
    }
}
