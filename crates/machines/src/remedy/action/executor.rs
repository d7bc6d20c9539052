//! How is the Job made that carries an action out, and what does it find where?
//!
//! ```text
//! Pod (the action's ServiceAccount, in the executor namespace)
//!   /etc/pawl/order   Secret `<job>-in`       order.json: the order
//!   /etc/pawl/undo    Secret `pawl-undo-UID`  undo.json: what this execution kept (I4)
//!   /etc/pawl/undone  Secret `pawl-undo-UID'` undo.json: what the execution kept that this one takes back; only then
//!   `pawl act` ─▶ API calls ─▶ the report as its termination message, the story on stdout
//! ```
//! The image is Pawl's own: on `pawl up` a Pod of that name runs the executable that is running already.

use pawl_api::remedy::{EXECUTOR_NAMESPACE, SERVICE_ACCOUNT_PREFIX};
use serde_json::{Value, json};

use super::{Order, definition, kept};
use crate::hardening::Hardening;
use crate::object::Key;

/// The container whose termination message is the report.
pub const CONTAINER: &str = "act";
/// The key of the input Secret under which the order stands.
pub const ORDER_KEY: &str = "order.json";

/// Where the Secrets are mounted.
pub const ORDER_DIRECTORY: &str = "/etc/pawl/order";
pub const UNDO_DIRECTORY: &str = "/etc/pawl/undo";
pub const UNDONE_DIRECTORY: &str = "/etc/pawl/undone";

/// The seed's names of the target's namespace and name.
pub const TARGET_NAMESPACE: &str = "TARGET_NAMESPACE";
pub const RESOURCE_NAME: &str = "RESOURCE_NAME";

/// What an operator may choose about executors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executor {
    pub namespace: String,
    /// Pawl's own.
    pub image: String,
    pub service_account_prefix: String,
}

impl Default for Executor {
    fn default() -> Self {
        Self {
            namespace: EXECUTOR_NAMESPACE.to_owned(),
            image: crate::deploy::deploy_item::OWN_IMAGE.to_owned(),
            service_account_prefix: SERVICE_ACCOUNT_PREFIX.to_owned(),
        }
    }
}

impl Executor {
    /// The ServiceAccount under which an order is carried out.
    pub fn service_account(&self, order: &Order) -> Key {
        Key::new(Some(&self.namespace), &order.action.service_account(&self.service_account_prefix))
    }

    /// Where what an execution keeps is kept.
    pub fn undo_secret(&self, uid: &str) -> Key {
        kept::secret(&self.namespace, uid)
    }

    /// What stands in the input Secret, as `stringData`.
    pub fn input(order: &Order) -> Value {
        json!({ORDER_KEY: order.to_json().to_string()})
    }

    /// The `spec` of the Pod that carries the order out; `input` is the Secret with [`Executor::input`].
    pub fn pod_spec(&self, order: &Order, input: &str) -> Value {
        let mut mounts = Vec::new();
        let mut volumes = Vec::new();
        let mut mount = |name: &str, path: &str, secret: &str| {
            mounts.push(json!({"name": name, "mountPath": path, "readOnly": true}));
            // Read by the one user of the Pod, who is not root.
            volumes.push(json!({"name": name, "secret": {"secretName": secret, "defaultMode": 0o444}}));
        };
        mount("order", ORDER_DIRECTORY, input);
        mount("undo", UNDO_DIRECTORY, &self.undo_secret(&order.uid).name);
        if let Some(undone) = &order.undoes {
            mount("undone", UNDONE_DIRECTORY, &self.undo_secret(undone).name);
        }
        let target = order.parameters().ok().and_then(|all| definition(order.action).target(&all)?.ok());
        let (namespace, name) = match &target {
            Some(pawl_api::meta::Target::Object(target)) => (target.namespace(), Some(target.name())),
            _ => (None, None),
        };
        let env = [(TARGET_NAMESPACE, namespace), (RESOURCE_NAME, name)];
        // A `$` would be the beginning of a reference (I10).
        let env: Vec<Value> = env
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value.unwrap_or_default().replace('$', "$$")}))
            .collect();
        let mut container = json!({
            "name": CONTAINER, "image": self.image, "args": ["act"], "env": env, "volumeMounts": mounts,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
            "terminationMessagePolicy": "File",
        });
        Hardening::OWN_IMAGE.apply_to_container(&mut container);
        let mut pod = json!({
            "restartPolicy": "Never", "serviceAccountName": self.service_account(order).name,
            "enableServiceLinks": false, "terminationGracePeriodSeconds": 10,
            "volumes": volumes, "containers": [container],
        });
        Hardening::OWN_IMAGE.apply_to_pod(&mut pod);
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::order;
    use super::*;

    #[test]
    fn an_executor_finds_its_order_and_what_was_kept_and_nothing_else() {
        let mut order = order(
            "scale_deployment",
            json!({"scaleDeployment": {"deployment": "d", "namespace": "n", "replicas": 3}}),
        );
        let executor = Executor::default();
        let spec = executor.pod_spec(&order, "in");
        let secrets = |spec: &Value| -> Vec<String> {
            let volumes = spec["volumes"].as_array().unwrap().iter();
            volumes.map(|volume| volume["secret"]["secretName"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(secrets(&spec), ["in", &format!("pawl-undo-{}", order.uid)]);
        assert_eq!(spec["serviceAccountName"], "kubernaut-action-scale-deployment");
        assert_eq!(
            spec["containers"][0]["env"],
            json!([{"name": "TARGET_NAMESPACE", "value": "n"}, {"name": "RESOURCE_NAME", "value": "d"}])
        );
        order.undoes = Some("other".to_owned());
        assert_eq!(secrets(&executor.pod_spec(&order, "in"))[2], "pawl-undo-other");
    }

    #[test]
    fn an_order_that_was_written_is_read() {
        let mut order = order("cordon_node", json!({"cordonNode": {"node": "a"}}));
        order.undoes = Some("u".to_owned());
        let input = Executor::input(&order);
        assert_eq!(Order::from_json(input[ORDER_KEY].as_str().unwrap()), Ok(order));
        assert!(Order::from_json("{}").is_err());
    }
}
