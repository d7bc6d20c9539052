//! What does `$(params.x)` become?
//!
//! A table of everything that may be named, and one pass over the text: what was put in is never looked at again, so a
//! parameter that holds `$(params.other)`, a newline or a quote stays what it is. A name that is not in the table stays
//! as it stands, as in Tekton: it may be a Kubernetes variable, or mean nothing.

use std::collections::BTreeMap;

use pawl_api::tekton::{Param, PipelineTask, TaskSpec};
use serde_json::{Map, Value};

/// What may be named, and what it stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Replacements {
    texts: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
    maps: BTreeMap<String, Map<String, Value>>,
}

/// What happens with the text afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// Kubernetes expands `$(VARIABLE)` in commands, arguments and variables: what was put in must come out of that
    /// unchanged (I10).
    Expanded,
}

impl Replacements {
    pub(crate) fn text(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.texts.insert(key.into(), value.into());
    }

    /// A parameter, by any of the ways in which it may be named.
    pub(crate) fn param(&mut self, name: &str, value: &Value) {
        self.value("params", name, value);
    }

    /// A task's result, likewise; those of the last tasks have a word of their own.
    pub(crate) fn result(&mut self, task: &str, name: &str, value: &Value) {
        self.value(&format!("tasks.{task}.results"), name, value);
        self.value(&format!("finally.{task}.results"), name, value);
    }

    fn value(&mut self, prefix: &str, name: &str, value: &Value) {
        for key in
            [format!("{prefix}.{name}"), format!("{prefix}[\"{name}\"]"), format!("{prefix}['{name}']")]
        {
            match value {
                Value::Array(items) => {
                    let items: Vec<String> = items.iter().map(plain).collect();
                    for (at, item) in items.iter().enumerate() {
                        self.texts.insert(format!("{key}[{at}]"), item.clone());
                    }
                    self.lists.insert(format!("{key}[*]"), items.clone());
                    self.lists.insert(key, items);
                }
                Value::Object(fields) => {
                    for (field, value) in fields {
                        self.texts.insert(format!("{key}.{field}"), plain(value));
                    }
                    self.maps.insert(format!("{key}[*]"), fields.clone());
                }
                scalar => {
                    self.texts.insert(key, plain(scalar));
                }
            }
        }
    }

    pub(crate) fn apply(&self, text: &str) -> String {
        self.fill(text, Then::Nothing)
    }

    /// Words of which each may also be a whole list: then it becomes that many words.
    fn words(&self, words: &[Value], then: Then) -> Vec<Value> {
        let fill = |word: &Value| -> Vec<Value> {
            let Value::String(text) = word else { return vec![word.clone()] };
            match reference(text).and_then(|key| self.lists.get(key)) {
                Some(items) => items.iter().map(|item| Value::String(escaped(item, then))).collect(),
                None => vec![Value::String(self.fill(text, then))],
            }
        };
        words.iter().flat_map(fill).collect()
    }

    /// The value of a parameter: a reference to a whole list or map becomes that.
    pub(crate) fn apply_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let key = reference(text);
                let list = key.and_then(|key| self.lists.get(key).filter(|_| key.ends_with("[*]")));
                let map = key.and_then(|key| self.maps.get(key));
                match (list, map) {
                    (Some(items), _) => items.iter().cloned().map(Value::String).collect(),
                    (None, Some(fields)) => Value::Object(fields.clone()),
                    (None, None) => Value::String(self.apply(text)),
                }
            }
            Value::Array(items) => Value::Array(self.words(items, Then::Nothing)),
            Value::Object(fields) => Value::Object(
                fields.iter().map(|(key, value)| (key.clone(), self.apply_value(value))).collect(),
            ),
            other => other.clone(),
        }
    }

    /// Everything in a task that may name something.
    pub(crate) fn task(&self, spec: &TaskSpec) -> TaskSpec {
        let containers = |list: &[Map<String, Value>]| list.iter().map(|one| self.container(one)).collect();
        let mut filled = spec.clone();
        filled.steps = containers(&spec.steps);
        filled.sidecars = containers(&spec.sidecars);
        filled.step_template = spec.step_template.as_ref().map(|template| self.container(template));
        filled.volumes = spec.volumes.iter().map(|volume| self.fields(volume)).collect();
        for workspace in &mut filled.workspaces {
            workspace.mount_path = workspace.mount_path.as_deref().map(|path| self.apply(path));
        }
        filled
    }

    /// Everything in a task of a pipeline that may name something.
    pub(crate) fn pipeline_task(&self, task: &PipelineTask) -> PipelineTask {
        let mut filled = task.clone();
        filled.params = self.params(&task.params);
        for when in &mut filled.when {
            when.input = self.apply(&when.input);
            let values: Vec<Value> = when.values.iter().cloned().map(Value::String).collect();
            when.values = self.words(&values, Then::Nothing).iter().map(plain).collect();
        }
        for workspace in &mut filled.workspaces {
            workspace.sub_path = workspace.sub_path.as_deref().map(|path| self.apply(path));
        }
        if let Some(task_ref) = &mut filled.task_ref {
            task_ref.params = self.params(&task_ref.params);
        }
        filled
    }

    /// A task that is written into a pipeline is filled again by its own run, so what goes in here must be harmless: the
    /// names of things. Values travel as parameters ([`carry`]).
    pub(crate) fn embedded(&self, spec: &TaskSpec) -> TaskSpec {
        edit_strings(spec, &|text| self.apply(text))
    }

    fn container(&self, container: &Map<String, Value>) -> Map<String, Value> {
        let then = Then::Expanded;
        let fill = |(key, value): (&String, &Value)| {
            let value = match (key.as_str(), value) {
                ("command" | "args", Value::Array(words)) => Value::Array(self.words(words, then)),
                ("env", Value::Array(variables)) => {
                    Value::Array(variables.iter().map(|variable| self.variable(variable, then)).collect())
                }
                _ => self.walk(value),
            };
            (key.clone(), value)
        };
        container.iter().map(fill).collect()
    }

    fn variable(&self, variable: &Value, then: Then) -> Value {
        let mut filled = self.walk(variable);
        let text = variable.get("value").and_then(Value::as_str).map(|text| self.fill(text, then));
        if let (Some(text), Some(fields)) = (text, filled.as_object_mut()) {
            fields.insert("value".to_owned(), text.into());
        }
        filled
    }

    fn params(&self, params: &[Param]) -> Vec<Param> {
        let fill = |param: &Param| Param { name: param.name.clone(), value: self.apply_value(&param.value) };
        params.iter().map(fill).collect()
    }

    fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        fields.iter().map(|(key, value)| (key.clone(), self.walk(value))).collect()
    }

    fn walk(&self, value: &Value) -> Value {
        edit_value(value, &|text| self.apply(text))
    }

    fn fill(&self, text: &str, then: Then) -> String {
        edit_references(text, &mut |key| Some(escaped(self.texts.get(key)?, then)))
    }
}

/// A result that something names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResultName {
    pub(crate) task: String,
    pub(crate) result: String,
}

impl ResultName {
    /// The parameter as which its value travels into a task that is written into a pipeline.
    pub(crate) fn as_param(&self) -> String {
        format!("tasks.{}.results.{}", self.task, self.result)
    }
}

/// Rewrites what names a result to name the parameter as which it travels.
pub(crate) fn carry(spec: &TaskSpec) -> TaskSpec {
    edit_strings(spec, &|text| {
        edit_references(text, &mut |key| {
            let (name, suffix) = result_in(key)?;
            Some(format!("$(params[\"{}\"]{suffix})", name.as_param()))
        })
    })
}

/// Whether a text names this parameter.
pub(crate) fn names_param(text: &str, name: &str) -> bool {
    let mut found = false;
    edit_references(text, &mut |key| {
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['[', '.']);
        let quoted = |mark: char| format!("params[{mark}{name}{mark}]");
        found |= key.strip_prefix("params.").and_then(|key| key.strip_prefix(name)).is_some_and(ends)
            || key.starts_with(&quoted('"'))
            || key.starts_with(&quoted('\''));
        None
    });
    found
}

/// The results that a text names.
pub(crate) fn results_named(text: &str) -> Vec<ResultName> {
    let mut found = Vec::new();
    edit_references(text, &mut |key| {
        found.extend(result_in(key).map(|(name, _)| name));
        None
    });
    found
}

/// The same for every text in a value.
pub(crate) fn results_named_in(value: &Value, found: &mut Vec<ResultName>) {
    match value {
        Value::String(text) => found.extend(results_named(text)),
        Value::Array(items) => items.iter().for_each(|item| results_named_in(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| results_named_in(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether the whole text is one reference, and to what.
pub(crate) fn reference(text: &str) -> Option<&str> {
    let key = text.strip_prefix("$(")?.strip_suffix(')')?;
    (!key.contains(['$', ')'])).then_some(key)
}

/// A scalar as text; numbers and booleans are written as JSON writes them.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `tasks.build.results.digest[0]`: the result, and `[0]`.
fn result_in(key: &str) -> Option<(ResultName, &str)> {
    let named = key.strip_prefix("tasks.").or_else(|| key.strip_prefix("finally."))?;
    let (task, rest) = named.split_once(".results")?;
    let (result, suffix) = match rest.strip_prefix('[') {
        Some(quoted) => {
            let (name, suffix) = quoted.split_once(']')?;
            (name.trim_matches(['"', '\'']), suffix)
        }
        None => {
            let name = rest.strip_prefix('.')?;
            name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
        }
    };
    Some((ResultName { task: task.to_owned(), result: result.to_owned() }, suffix))
}

/// Puts something else in the place of every `$(…)` for which there is something.
fn edit_references(text: &str, edit: &mut dyn FnMut(&str) -> Option<String>) -> String {
    let mut edited = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("$(") {
        let (before, found) = rest.split_at(at);
        edited.push_str(before);
        let inner = found.get(2..).unwrap_or_default();
        match inner.split_once(')').and_then(|(key, after)| Some((edit(key)?, after))) {
            Some((value, after)) => {
                edited.push_str(&value);
                rest = after;
            }
            None => {
                edited.push_str("$(");
                rest = inner;
            }
        }
    }
    edited.push_str(rest);
    edited
}

/// Every text of a task's steps, sidecars, volumes and defaults.
fn edit_strings(spec: &TaskSpec, edit: &dyn Fn(&str) -> String) -> TaskSpec {
    let fields = |map: &Map<String, Value>| match edit_value(&Value::Object(map.clone()), edit) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let mut edited = spec.clone();
    for list in [&mut edited.steps, &mut edited.sidecars, &mut edited.volumes] {
        list.iter_mut().for_each(|one| *one = fields(one));
    }
    edited.step_template = spec.step_template.as_ref().map(fields);
    for param in &mut edited.params {
        param.default = param.default.as_ref().map(|value| edit_value(value, edit));
    }
    edited
}

/// How deep it goes is bounded by what the API server takes.
fn edit_value(value: &Value, edit: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(edit(text)),
        Value::Array(items) => items.iter().map(|item| edit_value(item, edit)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), edit_value(value, edit))).collect())
        }
        other => other.clone(),
    }
}

fn escaped(value: &str, then: Then) -> String {
    match then {
        Then::Nothing => value.to_owned(),
        Then::Expanded => value.replace('$', "$$"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table() -> Replacements {
        let mut table = Replacements::default();
        table.param("x", &json!("1"));
        table.param("dotted.name", &json!("d"));
        table.param("list", &json!(["a", "b c", "$(params.x)"]));
        table.param("map", &json!({"url": "u", "rev": "$(params.x)\n'"}));
        table.param("tricky", &json!("$(params.x) $HOME `id` \n$(A)"));
        table.result("build", "digest", &json!("sha"));
        table.text("context.pipelineRun.name", "run");
        table
    }

    #[test]
    fn what_is_known_is_put_in_once_and_what_is_not_stays() {
        let table = table();
        for (text, expected) in [
            ("$(params.x)", "1"),
            ("a$(params.x)b$(params['x'])c$(params[\"x\"])", "a1b1c1"),
            ("$(params.dotted.name) $(params[\"dotted.name\"])", "d d"),
            ("$(params.list[1])", "b c"),
            ("$(params.list[7])", "$(params.list[7])"),
            ("$(params.map.url)", "u"),
            ("$(params.tricky)", "$(params.x) $HOME `id` \n$(A)"),
            ("$(tasks.build.results.digest)", "sha"),
            ("$(tasks.build.results['digest'])", "sha"),
            ("$(context.pipelineRun.name)", "run"),
            ("$(params.nope) $(HOME) $x ${x} $", "$(params.nope) $(HOME) $x ${x} $"),
            ("$(params.$(params.x))", "$(params.1)"),
            ("$$(params.x)", "$1"),
            ("$(params.x", "$(params.x"),
            ("ü$(params.x)ü", "ü1ü"),
        ] {
            assert_eq!(table.apply(text), expected, "{text}");
        }
    }

    #[test]
    fn a_whole_list_becomes_words_and_a_whole_map_a_map() {
        let table = table();
        let words = |words: Value| Value::Array(table.words(words.as_array().unwrap(), Then::Nothing));
        let list = json!(["a", "b c", "$(params.x)"]);
        assert_eq!(words(json!(["$(params.list[*])"])), list);
        assert_eq!(words(json!(["$(params.list)"])), list);
        assert_eq!(words(json!(["-$(params.list[*])"])), json!(["-$(params.list[*])"]));
        assert_eq!(table.apply_value(&json!("$(params.list[*])")), list);
        assert_eq!(table.apply_value(&json!("$(params.map[*])"))["url"], "u");
    }

    #[test]
    fn i10_what_kubernetes_expands_comes_out_as_it_was_put_in() {
        let step = json!({"name": "s", "args": ["$(params.tricky)", "$(AUTHORS)"], "script": "$(params.tricky)",
            "env": [{"name": "E", "value": "$(params.tricky)"}]});
        let filled = Value::Object(table().container(step.as_object().unwrap()));
        let doubled = "$$(params.x) $$HOME `id` \n$$(A)";
        assert_eq!(filled["args"], json!([doubled, "$(AUTHORS)"]));
        assert_eq!(filled["env"][0]["value"], doubled);
        assert_eq!(filled["script"], "$(params.x) $HOME `id` \n$(A)");
    }

    #[test]
    fn a_result_travels_into_an_embedded_task_as_a_parameter() {
        let spec: TaskSpec = serde_json::from_value(json!({"steps": [
            {"args": ["$(tasks.t.results.list[*])", "$(params.x)"], "script": "echo $(tasks.a-b.results['c'].k)"}]}))
        .unwrap();
        let step = Value::Object(carry(&spec).steps.remove(0));
        assert_eq!(step["args"], json!(["$(params[\"tasks.t.results.list\"][*])", "$(params.x)"]));
        assert_eq!(step["script"], "echo $(params[\"tasks.a-b.results.c\"].k)");
        assert!(names_param("a $(params.x[0])", "x") && names_param("$(params['x'])", "x"));
        assert!(!names_param("$(params.xy) params.x", "x"));
    }

    #[test]
    fn results_are_found_wherever_they_are_named() {
        let mut found = Vec::new();
        let value = json!({"a": ["x $(tasks.build.results.digest) $(tasks.a-b.results['c.d'][0])"],
            "b": "$(tasks.t.results.list[*]) $(tasks.t.status) $(tasks."});
        results_named_in(&value, &mut found);
        let found: Vec<String> = found.iter().map(ResultName::as_param).collect();
        let expected = ["tasks.build.results.digest", "tasks.a-b.results.c.d", "tasks.t.results.list"];
        assert_eq!(found, expected);
    }
}
