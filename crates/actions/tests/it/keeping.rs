//! What was kept, by whom, and what an execution does that finds the world, or itself, otherwise than it should be.

use pawl_api::k8s::{CONFIG_MAP, DEPLOYMENT, NODE, SECRET};
use pawl_machines::remedy::action::report::{MAX_BYTES, Outcome, Report};
use serde_json::{Value, json};

use crate::world::{World, decoded, order, undoing};

fn deployment(world: &World) {
    world.put(
        &DEPLOYMENT,
        json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    );
}

fn scaling(replicas: i32, number: u32) -> pawl_machines::remedy::action::Order {
    order("scale_deployment", json!({"deployment": "web", "namespace": "shop", "replicas": replicas}), number)
}

#[tokio::test]
async fn the_undo_is_an_immutable_secret_with_the_digest_that_the_status_names() {
    use sha2::{Digest, Sha256};
    let world = World::new();
    deployment(&world);
    let captured = world.capture(&scaling(5, 1)).await.unwrap();
    let reference = captured.information.undo_ref.unwrap();
    let path = SECRET.path(Some(&reference.namespace), Some(&reference.name));
    let (code, secret) = world.send("GET", &path, &Value::Null);
    assert_eq!((code, &secret["immutable"]), (200, &json!(true)));
    let content = decoded(secret["data"]["undo.json"].as_str().unwrap());
    assert_eq!(hex::encode(Sha256::digest(content)), reference.sha256);
    assert_eq!(
        Value::Object(captured.information.rollback_parameters),
        json!({"scaleDeployment": {"deployment": "web", "namespace": "shop", "replicas": 3}})
    );
}

#[tokio::test]
async fn what_was_captured_stays_what_it_was_when_the_target_moves() {
    let world = World::new();
    deployment(&world);
    let first = world.capture(&scaling(5, 1)).await.unwrap();
    world.patch(&DEPLOYMENT, "web", "", &json!({"spec": {"replicas": 9}}));
    assert_eq!(world.capture(&scaling(5, 1)).await.unwrap(), first);
    let other = world.capture(&scaling(5, 2)).await.unwrap();
    assert_ne!(other.digest, first.digest);
}

#[tokio::test]
async fn a_namesake_of_the_target_is_not_touched() {
    let world = World::new();
    deployment(&world);
    world.capture(&scaling(5, 1)).await.unwrap();
    world.send("DELETE", &DEPLOYMENT.path(Some("shop"), Some("web")), &Value::Null);
    deployment(&world);
    let report = world.act(&scaling(5, 1)).await;
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert!(report.message.contains("another one"), "{report:?}");
    assert_eq!(world.get(&DEPLOYMENT, "web")["spec"]["replicas"], 3);
}

#[tokio::test]
async fn a_rollback_whose_undo_is_gone_or_another_s_does_nothing() {
    let world = World::new();
    world.put(&CONFIG_MAP, json!({"metadata": {"name": "c"}, "binaryData": {"k": "AA=="}}));
    let parameters = json!({"configMap": "c", "namespace": "shop", "data": {"k": "new"}});
    let forward = order("update_configmap", parameters, 1);
    let captured = world.capture(&forward).await.unwrap();
    assert_eq!(world.act(&forward).await.outcome, Outcome::Done);
    let after = world.get(&CONFIG_MAP, "c");

    let mut astray = undoing(&forward, &captured, 2);
    astray.undoes = Some("00000000-0000-4000-8000-000000000099".to_owned());
    assert!(world.look(&astray).await.refusal.unwrap().contains("not there"));
    assert_eq!(
        world.act(&astray).await.outcome,
        Outcome::Refused,
        "it does not do the first one's work again"
    );

    let mut other = undoing(&forward, &captured, 3);
    let parameters =
        json!({"updateConfigmap": {"configMap": "c", "namespace": "shop", "data": {"k": "mine"}}});
    other.parameters = parameters.to_string().into();
    assert_eq!(world.act(&other).await.outcome, Outcome::Refused);
    assert_eq!(world.get(&CONFIG_MAP, "c"), after);
}

#[tokio::test]
async fn what_somebody_else_makes_of_the_target_meanwhile_is_not_overwritten_unseen() {
    let world = World::new();
    world.put(
        &NODE,
        json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    );
    let taint = order("taint_node", json!({"node": "n", "key": "k", "effect": "NoSchedule"}), 1);
    world.capture(&taint).await.unwrap();
    world.patch(
        &NODE,
        "n",
        "",
        &json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]}}),
    );
    assert_eq!(world.act(&taint).await.outcome, Outcome::Done);
    assert_eq!(world.get(&NODE, "n")["spec"]["taints"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_report_fits_a_termination_message_and_is_read_by_its_execution() {
    let world = World::new();
    deployment(&world);
    let order = scaling(5, 1);
    let report = world.act(&order).await;
    let rendered = report.render();
    assert!(rendered.len() <= MAX_BYTES);
    assert_eq!(Report::parse(&rendered, &order.uid), Ok(report));
}

#[tokio::test]
async fn what_is_not_there_is_refused_and_nothing_is_kept_of_it() {
    let world = World::new();
    let order = scaling(5, 1);
    let looked = world.look(&order).await;
    assert!(looked.targets[0].1.is_none());
    assert_eq!(looked.refusal.unwrap(), "Deployment shop/web is not there");
    assert_eq!(looked.namespaces["shop"]["team"], "shop");
    assert_eq!(world.capture(&order).await.unwrap_err().reason, "Refused");
    assert!(world.kept(&order.uid).is_none());
    let tried = world.try_out(&order).await;
    assert!(!tried.success && tried.errors[0].contains("not there"), "{tried:?}");
    assert_eq!(world.act(&order).await.outcome, Outcome::Refused);
}
