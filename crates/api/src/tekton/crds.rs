//! Tekton's kinds as the embedded server serves them. On a cluster they are Tekton's own.
//!
//! The schema names what [`super`] decodes, so that a wrong type is answered at once and never reaches a controller;
//! everything else is preserved as it was written.

use serde_json::{Map, Value, json};

use super::{GROUP, VERSION};

/// CustomResourceDefinitions of `pipelines`, `tasks`, `pipelineruns` and `taskruns`, in that order.
pub fn all() -> Vec<Value> {
    vec![
        definition("Pipeline", "pipelines", &[], open(json!({"spec": pipeline_spec()})), false),
        definition("Task", "tasks", &[], open(json!({"spec": task_spec()})), false),
        definition("PipelineRun", "pipelineruns", &["pr", "prs"], pipeline_run(), true),
        definition("TaskRun", "taskruns", &["tr", "trs"], task_run(), true),
    ]
}

fn definition(kind: &str, plural: &str, short: &[&str], schema: Value, is_run: bool) -> Value {
    let mut version = json!({
        "name": VERSION, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
    });
    if is_run {
        let condition = |field: &str| format!(".status.conditions[?(@.type==\"Succeeded\")].{field}");
        let column =
            |name: &str, type_: &str, path: &str| json!({"name": name, "type": type_, "jsonPath": path});
        if let Some(version) = version.as_object_mut() {
            version.insert("subresources".to_owned(), json!({"status": {}}));
            version.insert(
                "additionalPrinterColumns".to_owned(),
                json!([
                    column("Succeeded", "string", &condition("status")),
                    column("Reason", "string", &condition("reason")),
                    column("StartTime", "date", ".status.startTime"),
                    column("CompletionTime", "date", ".status.completionTime"),
                ]),
            );
        }
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}"), "labels": {"app.kubernetes.io/part-of": "pawl"}},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": [version],
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": kind.to_lowercase(), "shortNames": short,
                "categories": ["tekton", "tekton-pipelines"],
            },
        },
    })
}

/// An object of which these fields are known and any others are kept.
fn open(properties: Value) -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties})
}

/// An object without known fields.
fn anything() -> Value {
    open(json!({}))
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn text() -> Value {
    json!({"type": "string"})
}

/// Text, a list or a map: structural schemas have no word for "one of these types" but leaving it open.
fn value() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

fn named(mut properties: Value) -> Value {
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("name".to_owned(), text());
    }
    let mut schema = open(properties);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("required".to_owned(), json!(["name"]));
    }
    schema
}

/// As Go writes a length of time.
fn duration() -> Value {
    json!({"type": "string", "pattern": "^(0|([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$"})
}

fn params() -> Value {
    list(named(json!({"value": value()})))
}

fn declared() -> Value {
    list(named(json!({"type": text(), "default": value()})))
}

fn reference() -> Value {
    open(
        json!({"name": text(), "kind": text(), "apiVersion": text(), "resolver": text(), "params": params()}),
    )
}

fn workspace_declarations() -> Value {
    let flag = || json!({"type": "boolean"});
    list(named(json!({"mountPath": text(), "readOnly": flag(), "optional": flag()})))
}

fn workspace_bindings() -> Value {
    list(named(json!({"subPath": text()})))
}

fn task_spec() -> Value {
    open(json!({
        "params": declared(), "workspaces": workspace_declarations(), "results": declared(),
        "steps": list(anything()), "stepTemplate": anything(), "sidecars": list(anything()), "volumes": list(anything()),
    }))
}

fn pipeline_task() -> Value {
    let when = open(json!({"input": text(), "operator": text(), "values": list(text())}));
    open(json!({
        "name": text(), "taskRef": reference(), "taskSpec": task_spec(), "params": params(),
        "workspaces": list(named(json!({"workspace": text(), "subPath": text()}))),
        "runAfter": list(text()), "when": list(when), "retries": {"type": "integer", "format": "int32", "minimum": 0},
        "timeout": duration(), "onError": text(),
    }))
}

fn pipeline_spec() -> Value {
    open(json!({
        "params": declared(), "workspaces": workspace_declarations(), "results": params(),
        "tasks": list(pipeline_task()), "finally": list(pipeline_task()),
    }))
}

fn pipeline_run() -> Value {
    let states = ["", "Cancelled", "CancelledRunFinally", "StoppedRunFinally", "PipelineRunPending"];
    let spec = open(json!({
        "pipelineRef": reference(), "pipelineSpec": pipeline_spec(), "params": params(),
        "status": {"type": "string", "enum": states},
        "timeouts": open(json!({"pipeline": duration(), "tasks": duration(), "finally": duration()})),
        "taskRunTemplate": open(json!({"serviceAccountName": text(), "podTemplate": anything()})),
        "workspaces": workspace_bindings(),
    }));
    run(spec, json!({"pipelineSpec": anything(), "results": params(), "finallyStartTime": time()}))
}

fn task_run() -> Value {
    let spec = open(json!({
        "taskRef": reference(), "taskSpec": task_spec(), "params": params(), "workspaces": workspace_bindings(),
        "status": {"type": "string", "enum": ["", "TaskRunCancelled"]}, "statusMessage": text(),
        "serviceAccountName": text(), "retries": {"type": "integer", "format": "int32", "minimum": 0},
        "timeout": duration(), "podTemplate": anything(),
    }));
    run(spec, json!({"podName": text(), "steps": list(anything()), "results": list(anything())}))
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn run(spec: Value, status: Value) -> Value {
    let mut fields = Map::from_iter([
        ("startTime".to_owned(), time()),
        ("completionTime".to_owned(), time()),
        ("conditions".to_owned(), list(open(json!({"type": text(), "status": text()})))),
    ]);
    if let Value::Object(more) = status {
        fields.extend(more);
    }
    open(json!({"spec": spec, "status": open(Value::Object(fields))}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    #[test]
    fn the_definitions_are_definitions_with_tektons_names_and_columns() {
        let crds: Vec<CustomResourceDefinition> =
            all().into_iter().map(|crd| serde_json::from_value(crd).unwrap()).collect();
        let names: Vec<&str> = crds.iter().map(|crd| crd.metadata.name.as_deref().unwrap()).collect();
        let expected =
            ["pipelines.tekton.dev", "tasks.tekton.dev", "pipelineruns.tekton.dev", "taskruns.tekton.dev"];
        assert_eq!(names, expected);
        let run = &crds[2].spec;
        assert_eq!(run.names.short_names.as_deref().unwrap(), ["pr", "prs"]);
        let columns = run.versions[0].additional_printer_columns.as_ref().unwrap();
        let columns: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["Succeeded", "Reason", "StartTime", "CompletionTime"]);
    }
}
