//! What keeps an action from being done, before anybody is asked.

use super::*;

/// Ends in `failed` for this reason, saying this, with nothing made.
#[track_caller]
fn fails(acts: &mut Acts, patch: Value, reason: &str, says: &str) {
    acts.execution("k", patch).check("k", "failed", reason);
    let status = acts.status("k");
    assert!(status["message"].as_str().unwrap().contains(says), "{status:#}");
    assert!(acts.jobs().is_empty() && acts.holders().is_empty() && acts.undo("k").is_none());
    assert!(acts.event("ExecutionFailed"));
}

fn scale(parameters: &Value) -> Value {
    json!({"spec": {"parameters": {"scaleDeployment": parameters}}})
}

#[test]
fn an_action_that_nothing_objects_to_is_validated_gate_by_gate_and_carried_out() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).check("k", "executing", "JobCreated");
    for (gate, said) in [
        ("Validate", "Passed Valid"),
        ("Policy", "Passed PolicyAllowed"),
        ("DryRun", "Passed DryRunNotRequired"),
        ("Preconditions", "Passed PreconditionsMet"),
        ("Approval", "Passed ApprovalNotRequired"),
        ("Lock", "Passed LockAcquired"),
    ] {
        assert_eq!(acts.gate("k", gate), said);
    }
    let results = acts.status("k")["validationResults"].clone();
    assert_eq!(results["parameterValidation"], true);
    assert_eq!((&results["rbacValidation"], &results["resourceExists"]), (&json!(true), &json!(true)));
    assert_eq!(results["policyValidation"]["policyDigest"], "p1");
    assert!(acts.event("ActionValidating") && acts.event("JobCreated") && acts.event("RollbackPrepared"));
    let own = acts.cluster.statuses.iter().filter(|(of, _)| *of == key("k"));
    let phases: Vec<&str> = own.map(|(_, one)| one["phase"].as_str().unwrap()).collect();
    assert_eq!(phases[..3], ["validating", "validated", "executing"]);
}

#[test]
fn a_wrong_member_limits_and_fields_that_do_not_agree_are_validation_errors() {
    let wrong = json!({"spec": {"parameters": {"scaleDeployment": null, "cordonNode": {"node": "a"}}}});
    let relaxed = || {
        let mut acts = Acts::new();
        acts.cluster.relax(&KIND);
        acts
    };
    fails(&mut relaxed(), wrong, "validation_error", "cordon_node");
    let both = json!({"spec": {"parameters": {"cordonNode": {"node": "a"}}}});
    fails(&mut relaxed(), both, "validation_error", "exactly the member");
    fails(
        &mut Acts::new(),
        json!({"spec": {"targetNamespace": "other"}}),
        "validation_error",
        "targetNamespace",
    );
    fails(&mut Acts::new(), json!({"spec": {"resourceName": "other"}}), "validation_error", "resourceName");
    fails(&mut Acts::new(), json!({"spec": {"timeout": "0s"}}), "validation_error", "spec.timeout");
    let bad = json!({"metadata": {"annotations": {"pawl.dev/targets": "nonsense"}}});
    fails(&mut Acts::new(), bad, "validation_error", "pawl.dev/targets");
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"targetNamespace": "n", "resourceName": "web"}}));
    acts.check("k", "executing", "JobCreated");
}

#[test]
fn every_action_takes_retries_also_a_deletion() {
    let mut acts = Acts::new();
    acts.cluster.put(json!({"kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"}}));
    let repeated = json!({"spec": {"action": "delete_pod", "maxRetries": 1,
        "parameters": {"scaleDeployment": null, "deletePod": {"pod": "p", "namespace": "n"}}}});
    acts.execution("k", repeated).check("k", "executing", "JobCreated");
}

#[test]
fn a_namespace_that_does_not_let_it_in_is_not_acted_on_and_nodes_only_from_the_system_namespace() {
    let mut acts = Acts::new();
    acts.cluster.put(json!({"kind": "Namespace", "metadata": {"name": "prod"}}));
    fails(&mut acts, scale(&json!({"namespace": "prod"})), "namespace_not_allowed", "pawl.dev/allow-from: n");
    let node = json!({"spec": {"action": "cordon_node", "parameters": {"scaleDeployment": null, "cordonNode": {"node": "a"}}}});
    fails(&mut Acts::new(), node.clone(), "namespace_not_allowed", "belongs to no namespace");
    let mut acts = Acts::new();
    acts.cluster.put(json!({"kind": "Node", "metadata": {"name": "a"}, "spec": {}}));
    let mut home = node;
    merge(&mut home, &json!({"metadata": {"namespace": "pawl-system"}}));
    acts.execution("k", home);
    let found = acts.cluster.get(&KIND, &Key::new(Some("pawl-system"), "k")).unwrap();
    assert_eq!(found["status"]["phase"], "executing", "{found:#}");
}

#[test]
fn a_namespace_that_lets_it_in_is_acted_on() {
    let mut acts = Acts::new();
    let labels = json!({"pawl.dev/allow-from": "n"});
    acts.cluster.put(json!({"kind": "Namespace", "metadata": {"name": "prod", "labels": labels}}));
    let mut web = acts.cluster.get(&DEPLOYMENT, &key("web")).unwrap();
    web["metadata"] = json!({"name": "web", "namespace": "prod", "uid": "theirs"});
    acts.cluster.put(web);
    acts.execution("k", scale(&json!({"namespace": "prod"}))).check("k", "executing", "JobCreated");
}

#[test]
fn a_service_account_that_is_missing_or_lacks_one_verb_denies() {
    let mut acts = Acts::new();
    acts.rules.borrow_mut().access.exists = false;
    fails(&mut acts, json!({}), "rbac_denied", "kubernaut-action-scale-deployment");
    assert_eq!(acts.status("k")["validationResults"]["rbacValidation"], false);
    let mut acts = Acts::new();
    acts.rules.borrow_mut().access.missing = vec!["patch deployments/scale.apps in n".to_owned()];
    fails(&mut acts, json!({}), "rbac_denied", "may not patch deployments/scale.apps in n");
}

#[test]
fn a_target_that_is_not_there_is_not_found() {
    let mut acts = Acts::new();
    fails(&mut acts, scale(&json!({"deployment": "nobody"})), "resource_not_found", "nobody");
    assert_eq!(acts.status("k")["validationResults"]["resourceExists"], false);
}

#[test]
fn protected_namespaces_and_nodes_of_the_control_plane_are_left_alone_also_from_the_system_namespace() {
    for namespace in ["kube-system", "pawl-system", EXECUTOR] {
        let mut acts = Acts::new();
        let mut patch = scale(&json!({"namespace": namespace}));
        merge(&mut patch, &json!({"metadata": {"namespace": "pawl-system"}}));
        acts.execution("k", patch);
        let found = acts.cluster.get(&KIND, &Key::new(Some("pawl-system"), "k")).unwrap();
        assert_eq!(found["status"]["reason"], "protected_resource", "{found:#}");
    }
    let mut acts = Acts::new();
    let labels = json!({"node-role.kubernetes.io/control-plane": ""});
    acts.cluster.put(json!({"kind": "Node", "metadata": {"name": "a", "labels": labels}, "spec": {}}));
    let node = json!({"metadata": {"namespace": "pawl-system"}, "spec": {"action": "cordon_node",
        "parameters": {"scaleDeployment": null, "cordonNode": {"node": "a"}}}});
    acts.execution("k", node);
    let found = acts.cluster.get(&KIND, &Key::new(Some("pawl-system"), "k")).unwrap();
    assert_eq!(found["status"]["reason"], "protected_resource", "{found:#}");
    assert_eq!(acts.cluster.get(&NODE, &Key::new(None, "a")).unwrap()["spec"], json!({}));
}

#[test]
fn the_list_of_protected_namespaces_is_the_operators() {
    let mut acts = Acts::new();
    let mine = KubernetesExecutions {
        protected_namespaces: vec!["n".to_owned()],
        ..KubernetesExecutions::default()
    };
    acts.machines[0] = crate::machine::AnyMachine::new(mine);
    fails(&mut acts, json!({}), "protected_resource", "the namespace n");
}

#[test]
fn what_a_gitops_tool_manages_is_left_to_it_unless_policy_says_otherwise() {
    for marks in [
        json!({"labels": {"argocd.argoproj.io/instance": "shop"}}),
        json!({"annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:n/web"}}),
        json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}),
        json!({"labels": {"helm.toolkit.fluxcd.io/name": "shop"}}),
    ] {
        let mut acts = Acts::new();
        acts.cluster.edit(&DEPLOYMENT, &key("web"), &json!({"metadata": marks}));
        fails(&mut acts, json!({}), "gitops_managed", "is managed by");
        acts.rule(|decision| decision.allow_gitops = true);
        acts.execution("l", json!({})).check("l", "executing", "JobCreated");
    }
}

#[test]
fn policy_denies_and_says_why() {
    let mut acts = Acts::new();
    acts.rule(|decision| decision.deny = vec!["never on Fridays".to_owned()]);
    fails(&mut acts, json!({}), "policy_denied", "never on Fridays");
    assert!(acts.event("PolicyDenied"));
    assert_eq!(acts.gate("k", "Policy"), "Stopped policy_denied");
    let policy = acts.status("k")["validationResults"]["policyValidation"].clone();
    assert_eq!((&policy["allowed"], &policy["violations"]), (&json!(false), &json!(["never on Fridays"])));
    let mut acts = Acts::new();
    acts.rule(|decision| decision.allow = false);
    fails(&mut acts, json!({}), "policy_denied", "does not say allow");
}

#[test]
fn a_policy_that_cannot_be_evaluated_denies() {
    let mut acts = Acts::new();
    acts.rules.borrow_mut().policy = Err("it took longer than 5s".to_owned());
    fails(&mut acts, json!({}), "policy_error", "longer than 5s");
    assert!(acts.event("PolicyDenied"));
}

#[test]
fn while_a_port_is_down_nothing_is_decided_and_afterwards_it_goes_on() {
    for port in ["actions", "policy"] {
        let mut acts = Acts::new();
        acts.rules.borrow_mut().down = Some(port);
        acts.execution("k", json!({})).check("k", "validating", "ActionValidating");
        assert!(acts.jobs().is_empty());
        acts.rules.borrow_mut().down = None;
        acts.settle().check("k", "executing", "JobCreated");
    }
}

#[test]
fn a_dry_run_that_policy_asks_for_is_made_shown_to_policy_and_may_fail() {
    let mut acts = Acts::new();
    acts.rule(|decision| decision.require_dry_run = true);
    acts.execution("k", json!({})).check("k", "executing", "JobCreated");
    assert_eq!(acts.gate("k", "DryRun"), "Passed DryRunSucceeded");
    let tried = acts.status("k")["validationResults"]["dryRunResults"].clone();
    assert_eq!((&tried["performed"], &tried["success"]), (&json!(true), &json!(true)));
    let inputs: Vec<String> = acts.cluster.calls.iter().filter_map(safety_input).collect();
    let shown = |input: &String| input.contains(r#""performed":true"#);
    assert!(inputs.iter().any(|input| !shown(input)) && inputs.iter().any(shown));
    let mut acts = Acts::new();
    acts.rule(|decision| decision.require_dry_run = true);
    acts.rules.borrow_mut().dry_run_errors = vec!["quota exceeded".to_owned()];
    fails(&mut acts, json!({}), "dry_run_failed", "quota exceeded");
}

fn safety_input(call: &crate::external::Call) -> Option<String> {
    let question = call.request()?;
    if let crate::remedy::safety::Question::Safety { input, .. } = question {
        Some(input.to_string())
    } else {
        None
    }
}

#[test]
fn a_risk_that_policy_calls_high_is_tried_first() {
    let mut acts = Acts::new();
    acts.rule(|decision| decision.risk = Some("high".to_owned()));
    acts.execution("k", json!({}));
    assert_eq!(acts.gate("k", "DryRun"), "Passed DryRunSucceeded");
}

#[test]
fn a_dry_run_makes_no_job_and_ends_completed() {
    let mut acts = Acts::new();
    acts.execution("k", json!({"spec": {"dryRun": true}})).check("k", "completed", "DryRun");
    assert!(acts.jobs().is_empty() && acts.undo("k").is_none() && acts.holders().is_empty());
    assert_eq!(acts.replicas("web"), 3);
    assert_eq!(acts.status("k")["outcome"], "success");
    assert!(acts.event("ExecutionCompletedPermanent"));
}

#[test]
fn what_policy_sees_names_action_target_requester_cluster_and_time() {
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    let input: Value =
        serde_json::from_str(&acts.cluster.calls.iter().find_map(safety_input).unwrap()).unwrap();
    assert_eq!(input["action"], "scale_deployment");
    assert_eq!(input["parameters"]["scaleDeployment"]["replicas"], 5);
    assert_eq!(input["target"]["spec"]["replicas"], 3);
    assert_eq!(input["requester"]["username"], "ann");
    assert_eq!(input["namespace"]["name"], "n");
    assert_eq!(input["cluster"], json!({"nodes": 3, "concurrentActions": 0}));
    assert_eq!(input["time"]["now"], "2026-01-01T00:00:00Z");
    assert_eq!(input["dryRun"], Value::Null);
}

#[test]
fn a_freeze_holds_it_up_before_policy_is_asked_and_lets_it_go_when_it_ends() {
    let mut acts = Acts::new();
    let freeze = json!({"kind": "Freeze", "metadata": {"name": "holidays"}, "spec": {"doors": ["remedy"],
        "reason": "holidays", "until": "2026-01-01T02:00:00Z"}});
    acts.cluster.put(freeze);
    acts.execution("k", json!({})).check("k", "validating", "Frozen");
    assert_eq!(acts.gate("k", "Freeze"), "Waiting Frozen");
    assert!(acts.status("k")["conditions"].to_string().contains("holidays"));
    assert!(acts.cluster.calls.iter().all(|call| call.system() != "policy"));
    acts.execution("tried", json!({"spec": {"dryRun": true}})).check("tried", "completed", "DryRun");
    let nevertheless = json!({"metadata": {"annotations": {"pawl.dev/freeze-override": "it burns"}}});
    acts.execution("l", nevertheless).check("l", "executing", "JobCreated");
    acts.act().wait(Duration::from_hours(2)).check("k", "executing", "JobCreated");
}

#[test]
fn a_freeze_that_comes_before_the_job_holds_it_up_and_gives_the_lock_back() {
    let mut acts = Acts::new();
    acts.execution("k", json!({})).execution("l", json!({})).check("l", "executing", "TargetLocked");
    acts.cluster.put(json!({"kind": "Freeze", "metadata": {"name": "f"}, "spec": {"reason": "now",
        "until": "2026-01-01T02:00:00Z"}}));
    acts.act().check("k", "rollback_ready", "Completed").check("l", "executing", "Frozen");
    assert!(acts.holders().is_empty());
    acts.wait(Duration::from_hours(2)).act().check("l", "rollback_ready", "Completed");
}

#[test]
fn policy_is_told_of_a_freeze_that_holds_and_was_overridden_and_of_no_other() {
    let freezes = |acts: &Acts| -> Vec<Value> {
        let inputs = acts.cluster.calls.iter().filter_map(safety_input);
        let mut told: Vec<Value> =
            inputs.map(|input| serde_json::from_str::<Value>(&input).unwrap()["freezes"].clone()).collect();
        told.dedup();
        told
    };
    let mut acts = Acts::new();
    acts.cluster
        .put(json!({"kind": "Freeze", "metadata": {"name": "holidays"}, "spec": {"doors": ["remedy"],
        "reason": "holidays", "until": "2026-01-01T02:00:00Z"}}));
    acts.cluster.put(json!({"kind": "Freeze", "metadata": {"name": "past"}, "spec": {"reason": "over",
        "until": "2025-01-01T02:00:00Z"}}));
    let nevertheless = json!({"metadata": {"annotations": {"pawl.dev/freeze-override": "it burns"}}});
    acts.execution("k", nevertheless).check("k", "executing", "JobCreated");
    assert_eq!(freezes(&acts), [json!(["holidays"])]);
    let mut acts = Acts::new();
    acts.execution("k", json!({}));
    assert_eq!(freezes(&acts), [json!([])]);
}

#[test]
fn i6_a_secret_in_a_manifest_is_refused_before_anybody_is_asked_and_its_values_are_repeated_nowhere() {
    let canary = "obviously-not-a-real-secret";
    for field in ["stringData", "data"] {
        let mut acts = Acts::new();
        let manifest =
            format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{field}: {{password: {canary}}}\n");
        let apply = json!({"spec": {"action": "apply_manifest", "dryRun": true,
            "parameters": {"scaleDeployment": null, "applyManifest": {"manifest": manifest}}}});
        fails(&mut acts, apply, "validation_error", "may not be applied");
        assert!(!acts.status("k").to_string().contains(canary));
        assert!(acts.cluster.events.iter().all(|(_, _, note)| !note.contains(canary)));
        assert!(
            acts.cluster.calls.iter().all(|call| !format!("{call:?}").contains(canary)),
            "nobody was asked"
        );
    }
}

fn pre(conditions: &[Value]) -> Value {
    json!({"spec": {"preConditions": conditions}})
}

#[test]
fn a_required_precondition_that_does_not_hold_fails_and_an_optional_one_is_only_told() {
    let mut acts = Acts::new();
    let small = condition("Small", "/spec/replicas == 2", true, "0s");
    fails(&mut acts, pre(&[small]), "precondition_failed", "Small: /spec/replicas is 3");
    let results = acts.status("k")["validationResults"]["preConditionResults"].clone();
    assert_eq!((&results[0]["passed"], &results[0]["required"]), (&json!(false), &json!(true)));
    let mut acts = Acts::new();
    acts.execution("k", pre(&[condition("Small", "/spec/replicas == 2", false, "0s")]));
    acts.check("k", "executing", "JobCreated");
    assert_eq!(acts.status("k")["validationResults"]["preConditionResults"][0]["passed"], false);
}

#[test]
fn a_precondition_that_comes_true_late_is_waited_for_and_i8_no_longer_than_it_says() {
    let late = || pre(&[condition("Small", "/spec/replicas == 2", true, "10m")]);
    let mut acts = Acts::new();
    acts.execution("k", late()).check("k", "validating", "ActionValidating");
    assert_eq!(acts.gate("k", "Preconditions"), "Waiting PreconditionsPending");
    acts.wait(Duration::from_mins(9)).scale("web", 2).check("k", "executing", "JobCreated");
    let mut acts = Acts::new();
    acts.execution("k", late()).wait(Duration::from_mins(9)).check("k", "validating", "ActionValidating");
    acts.wait(Duration::from_mins(1)).check("k", "failed", "precondition_failed");
}

#[test]
fn a_precondition_that_cannot_be_evaluated_fails_at_once() {
    let mut acts = Acts::new();
    let broken = condition("Broken", "nonsense", true, "10m");
    fails(&mut acts, pre(&[broken]), "precondition_failed", "cannot be evaluated");
}
