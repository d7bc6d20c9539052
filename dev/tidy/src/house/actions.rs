//! What is written about actions, from the one registry that also drives them?
//!
//! `deploy/rbac/` holds what `pawl rbac generate` prints, and `docs/actions/` a page for each action: what it does, with
//! which parameters, with which rights, and how it is taken back.

use pawl_api::remedy::kubernetes_execution;
use pawl_api::remedy::{Action, SERVICE_ACCOUNT_PREFIX};
use pawl_machines::remedy::action::executor::Executor;
use pawl_machines::remedy::action::{Definition, UndoKind, definition, rbac};
use serde_json::{Value, json};

use super::generated::Generated;
use crate::Error;

/// Where the rights stand.
const RBAC: &str = "deploy/rbac/";
/// Where the pages stand.
const PAGES: &str = "docs/actions/";

const NOTE: &str =
    "Generated from crates/machines/src/remedy/action. To write it anew: PAWL_BLESS=1 make test";

/// What `pawl rbac generate` prints.
///
/// # Errors
/// When a manifest cannot be printed.
pub fn rbac_files() -> Result<Generated, Error> {
    let mut text = format!("# {NOTE}\n");
    for manifest in rbac::manifests(&Executor::default(), &[]) {
        text.push_str(&format!("---\n{}", yaml("the rights of actions", &manifest)?));
    }
    Ok(Generated::from([(format!("{RBAC}actions.yaml"), text)]))
}

/// A page for each action, and one that lists them.
///
/// # Errors
/// When an example cannot be printed.
pub fn page_files() -> Result<Generated, Error> {
    let ours = kubernetes_execution::KIND.kind;
    let crd = pawl_api::crds::all().into_iter().find(|crd| crd.spec.names.kind == ours);
    let crd = serde_json::to_value(crd)?;
    let parameters =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/parameters/properties";
    let schemas = crd.pointer(parameters).cloned().unwrap_or_default();
    let mut files = Generated::new();
    let mut rows = String::new();
    for action in Action::ALL {
        let definition = definition(*action);
        let schema = schemas.get(action.member()).cloned().unwrap_or_default();
        files.insert(format!("{PAGES}{action}.md"), page(definition, &schema)?);
        let what = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        rows.push_str(&format!("| [`{action}`]({action}.md) | {what} | {} |\n", back(definition)));
    }
    let list = format!(
        "<!-- {NOTE} -->\n# Actions\n\nWhat a KubernetesExecution may do, as its `spec.action`. Each action has one \
         ServiceAccount with the rights it needs and no others;\n`pawl rbac generate` prints them \
         ([deploy/rbac/actions.yaml](../../deploy/rbac/actions.yaml)).\n\n| action | what it does | how it is taken back \
         |\n|---|---|---|\n{rows}"
    );
    files.insert(format!("{PAGES}README.md"), list);
    Ok(files)
}

fn page(definition: &Definition, schema: &Value) -> Result<String, Error> {
    let action = definition.action;
    let scope = match definition.kinds {
        [] => "whatever the parameters name",
        _ if definition.is_cluster_scoped() => "objects of the whole cluster; only from Pawl's own namespace",
        _ => "objects in a namespace",
    };
    let account = action.service_account(SERVICE_ACCOUNT_PREFIX);
    let mut rights = String::new();
    for rule in definition.rules() {
        let group = if rule.group.is_empty() { "core" } else { rule.group };
        rights.push_str(&format!(
            "| {group} | {} | {} |\n",
            rule.resources.join(", "),
            rule.verbs.join(", ")
        ));
    }
    Ok(format!(
        "<!-- {NOTE} -->\n# `{action}`\n\n{}\n\n| | |\n|---|---|\n| targets | {scope} |\n| taken back | {} |\n| default \
         timeout of an attempt | {} |\n| a failed attempt may be repeated (`maxRetries`) | yes |\n| can be tried without \
         effect | {} |\n| ServiceAccount | `{account}` |\n\n## Parameters\n\nIn `spec.parameters.{}`:\n\n| field | type | \
         meaning |\n|---|---|---|\n{}\n## Rights\n\n| group | resources | verbs |\n|---|---|---|\n{rights}\n## Example\n\n\
         ```yaml\n{}```\n",
        definition.about,
        back(definition),
        definition.timeout,
        if definition.dry_runnable { "yes" } else { "no" },
        action.member(),
        fields(schema),
        example(definition)?,
    ))
}

fn back(definition: &Definition) -> String {
    match definition.undo {
        UndoKind::Action => "by an action that its status names".to_owned(),
        UndoKind::Restore => "by the same action, from what was kept".to_owned(),
        UndoKind::Never(why) => format!("not: {why}"),
    }
}

/// One line per field.
fn fields(schema: &Value) -> String {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut lines = String::new();
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let text = |key: &str| field.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |key: &str| field.get(key).and_then(Value::as_f64).map(|number| number.to_string());
        let mut notes = Vec::new();
        if !required.contains(&name.as_str()) {
            notes.push("optional".to_owned());
        }
        if let Some(words) = field.get("enum").and_then(Value::as_array) {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            notes.push(format!("one of {}", words.join(", ")));
        }
        match (number("minimum"), number("maximum")) {
            (Some(least), Some(most)) => notes.push(format!("{least} to {most}")),
            (Some(least), None) => notes.push(format!("at least {least}")),
            (None, Some(most)) => notes.push(format!("at most {most}")),
            (None, None) => {}
        }
        notes.extend(number("maxLength").map(|most| format!("at most {most} characters")));
        notes.extend(
            number("maxProperties").or_else(|| number("maxItems")).map(|most| format!("at most {most}")),
        );
        notes.extend(field.get("default").map(|default| format!("default {default}")));
        let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        let meaning = text("description").replace('\n', " ");
        lines.push_str(&format!("| `{name}` | {}{notes} | {meaning} |\n", text("type")));
    }
    lines
}

fn example(definition: &Definition) -> Result<String, Error> {
    let action = definition.action;
    let parameters = (definition.example)();
    let namespace = match definition.is_cluster_scoped() {
        true => "pawl-system",
        false => parameters.get("namespace").and_then(Value::as_str).unwrap_or("shop"),
    };
    let head = yaml(
        action.as_str(),
        &json!({
            "apiVersion": kubernetes_execution::KIND.api_version(), "kind": kubernetes_execution::KIND.kind,
        }),
    )?;
    let name = action.as_str().replace('_', "-");
    let spec = yaml(
        action.as_str(),
        &json!({"spec": {"action": action, "parameters": {action.member(): parameters}}}),
    )?;
    Ok(format!("{head}metadata:\n  name: {name}\n  namespace: {namespace}\n{spec}"))
}

fn yaml(name: &str, value: &Value) -> Result<String, Error> {
    serde_saphyr::to_string(value)
        .map_err(|problem| Error::Yaml { name: name.to_owned(), problem: problem.to_string() })
}

#[cfg(test)]
mod tests {
    use super::super::generated::{bless, stale};
    use super::*;
    use crate::root;
    use crate::testing::{assert_clean, real};
    use pawl_api::remedy::KubernetesExecution;

    fn held(generated: &Generated, directory: &str) {
        let (tree, _) = real();
        if std::env::var_os("PAWL_BLESS").is_some_and(|value| value == "1") {
            bless(root(), &tree, generated, directory).unwrap();
        } else {
            assert_clean(&stale(&tree, generated, directory));
        }
    }

    #[test]
    fn the_rights_of_actions_in_the_tree_are_those_of_the_registry() {
        held(&rbac_files().unwrap(), RBAC);
    }

    #[test]
    fn every_action_has_a_page_that_says_what_the_registry_says() {
        let pages = page_files().unwrap();
        assert_eq!(pages.len(), Action::ALL.len() + 1);
        held(&pages, PAGES);
    }

    #[test]
    fn a_page_has_the_limits_of_the_schema_and_an_example_that_is_an_execution() {
        let pages = page_files().unwrap();
        let page = &pages["docs/actions/scale_deployment.md"];
        assert!(page.contains("| `replicas` | integer (0 to 1000) |"), "{page}");
        for (path, page) in pages.iter().filter(|(path, _)| !path.ends_with("README.md")) {
            let (_, rest) = page.split_once("```yaml\n").unwrap();
            let (example, _) = rest.split_once("```").unwrap();
            let execution: KubernetesExecution = serde_saphyr::from_str(example).unwrap();
            definition(execution.spec.action)
                .check(&execution.spec.parameters)
                .unwrap_or_else(|e| panic!("{path}: {e}"));
        }
    }
}
