//! `update_secret`: sets keys of a Secret to values of other Secrets.
//!
//! Values come from Secrets in the namespace of the execution and go from one Secret to the other inside the executor:
//! no spec, status, diff or log has them, nor a hash that could be guessed (I6).

use pawl_api::k8s::SECRET;
use pawl_api::remedy::actions::{self, Action};
use serde_json::{Map, Value, json};

use super::Order;
use super::definition::{Act, Context, Definition, Need, Problem, UndoKind, needs_on};
use super::kept::Restore;
use super::seen::{self, Place, Read, Seen, text};
use super::update_configmap::{check_key, is_immutable};

/// Written by the cluster itself; whoever writes one makes a credential.
const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

pub(super) const DEFINITION: Definition = Definition {
    about: "Sets keys of a Secret to values that stand in other Secrets, in the namespace of the execution: a spec \
            never has the values themselves. What the keys held before is kept in the undo Secret alone. Immutable \
            Secrets and tokens of ServiceAccounts are refused.",
    done: "updated",
    undo: UndoKind::Restore,
    kinds: &[SECRET],
    example: || {
        json!({"secret": "db-credentials", "namespace": "shop", "data": {
            "password": {"valueFrom": {"secretKeyRef": {"name": "rotated", "key": "password"}}}}})
    },
    ..Definition::new(Action::UpdateSecret, |all| Some(Box::new(all.update_secret.as_ref()?)))
};

impl Act for &actions::UpdateSecret {
    fn check(&self) -> Result<(), Problem> {
        if self.data.is_empty() {
            return Err(Problem::new("data", "at least one key must be said"));
        }
        self.data.keys().try_for_each(|key| check_key("data", key))
    }

    fn place(&self) -> Option<Place> {
        Some(Place::namespaced(SECRET, &self.namespace, &self.secret))
    }

    fn needs(&self, order: &Order, verbs: &'static [&'static str]) -> Vec<Need> {
        let mut needs = needs_on(&self.places(order), verbs);
        needs.extend(needs_on(&sources(order, self), &["get"]));
        needs.sort();
        needs.dedup();
        needs
    }

    fn more_reads(&self, context: &Context<'_>, _: &Seen) -> Vec<Read> {
        match context.restoring() {
            Some(_) => Vec::new(),
            None => sources(context.order, self).into_iter().map(Read::Object).collect(),
        }
    }

    fn refuses(&self, object: &Value) -> Option<&'static str> {
        match text(object, "/type") {
            _ if is_immutable(object) => Some("is immutable"),
            Some(ACCOUNT_TOKEN) => Some("is the token of a ServiceAccount"),
            _ => None,
        }
    }

    fn patch(&self, context: &Context<'_>, object: &Value, seen: &Seen) -> Result<Option<Value>, String> {
        let data = wanted(context.order, self, object, seen)?;
        Ok((!data.is_empty()).then(|| json!({"data": data})))
    }

    fn restore(&self, object: &Value) -> Restore {
        let was = |key: &String| (key.clone(), held(object, key).cloned().unwrap_or_default());
        Restore::Merge(json!({"data": self.data.keys().map(was).collect::<Map<_, _>>()}))
    }

    /// A short secret could be guessed from its hash; the version moves whenever the values do.
    fn fields(&self, object: &Value) -> Value {
        json!({"resourceVersion": seen::resource_version(object)})
    }

    fn words(&self, object: &Value, _: &Seen) -> String {
        let one = |key: &String| match held(object, key) {
            Some(_) => format!("{key}: {}", super::diff::MASKED),
            None => format!("{key}: absent"),
        };
        self.data.keys().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn held<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("data")?.get(key)
}

/// The Secrets that values come from, each once.
fn sources(order: &Order, given: &actions::UpdateSecret) -> Vec<Place> {
    let names: std::collections::BTreeSet<&str> =
        given.data.values().map(|value| value.value_from.secret_key_ref.name.as_str()).collect();
    names.into_iter().map(|name| source(order, name)).collect()
}

fn source(order: &Order, name: &str) -> Place {
    Place::namespaced(SECRET, order.execution.namespace.as_deref().unwrap_or_default(), name)
}

/// The keys whose values are others, and what they shall be.
fn wanted(
    order: &Order,
    given: &actions::UpdateSecret,
    object: &Value,
    seen: &Seen,
) -> Result<Map<String, Value>, String> {
    let mut data = Map::new();
    for (key, value) in &given.data {
        let from = &value.value_from.secret_key_ref;
        let place = source(order, &from.name);
        let found = seen.object(&place).ok_or_else(|| format!("{place}, for {key}, is not there"))?;
        let value =
            held(found, &from.key).ok_or_else(|| format!("{place} has no key {}, for {key}", from.key))?;
        if held(object, key) != Some(value) {
            data.insert(key.clone(), value.clone());
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::super::course::Course;
    use super::super::testing::{asked_again, course, given, kept, only_patch, patch, refusal, words};
    use super::super::{definition, testing};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn secret(namespace: &str, name: &str, data: Value) -> Value {
        json!({"kind": "Secret", "metadata": {"name": name, "namespace": namespace, "resourceVersion": "7"}, "data": data})
    }

    fn order() -> Order {
        given("update_secret", (DEFINITION.example)())
    }

    #[test]
    fn values_come_from_the_namespace_of_the_execution_and_go_back_from_what_was_kept() {
        let (from, to) = (
            secret("home", "rotated", json!({"password": "bmV3"})),
            secret("shop", "db-credentials", json!({"password": "b2xk"})),
        );
        assert_eq!(patch(&order(), &[from.clone(), to.clone()]).1, json!({"data": {"password": "bmV3"}}));
        let kept = kept(&order(), &[from, to]);
        let changed = secret("shop", "db-credentials", json!({"password": "bmV3"}));
        let back = asked_again(&order(), &[changed], Some(&kept), |definition, context, seen| {
            definition.course(context, seen)
        });
        let Course::Finish(writes) = back else { panic!("{back:?}") };
        assert_eq!(only_patch(&writes).1, json!({"data": {"password": "b2xk"}}));
    }

    #[test]
    fn nothing_that_is_told_has_a_value_or_its_hash() {
        let of = |value: &str| {
            let world = [
                secret("home", "rotated", json!({"password": "bmV3"})),
                secret("shop", "db-credentials", json!({"password": value})),
            ];
            let told = kept(&order(), &world).told(&super::super::kept::secret("e", "u"), "");
            (format!("{told:?}"), words(&order(), &world))
        };
        assert_eq!(of("b2xk"), of("b3RoZXI="), "the digest follows the version, not the value");
        assert_eq!(of("b2xk").1, ["password: ***"]);
        assert!(!of("b2xk").0.contains("b2xk"));
    }

    #[test]
    fn sources_that_are_missing_and_secrets_that_must_not_be_written_are_refused() {
        let from = secret("home", "rotated", json!({"password": "bmV3"}));
        let to = secret("shop", "db-credentials", json!({}));
        assert!(
            refusal(&order(), std::slice::from_ref(&to))
                .contains("Secret home/rotated, for password, is not there")
        );
        let other = secret("home", "rotated", json!({"other": "bmV3"}));
        assert!(refusal(&order(), &[to.clone(), other]).contains("no key password"));
        for (field, value) in [("immutable", json!(true)), ("type", json!(ACCOUNT_TOKEN))] {
            let mut to = to.clone();
            to[field] = value;
            assert!(matches!(course(&order(), &[to, from.clone()]), Course::Refuse(_)), "{field}");
        }
    }

    #[test]
    fn each_source_must_be_readable() {
        let order = order();
        let needs = definition(order.action).needs(&order, &order.parameters().unwrap());
        let needs: Vec<String> = needs.iter().map(ToString::to_string).collect();
        assert_eq!(needs, ["get secrets in home", "get secrets in shop", "patch secrets in shop"]);
        let bad = json!({"secret": "s", "namespace": "n", "data": {"a/b": {"valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}}});
        assert_eq!(testing::check("update_secret", bad).unwrap_err().field, "updateSecret.data");
    }
}
