//! Does a value fit a JSON Schema? The keywords that blueprints use for their imports and exports.
//!
//! `$ref` leads into the same schema (`#/definitions/x`), to the blueprint's `localTypes` (`local://x`), or to one of
//! its files (`blueprint://x`). A keyword that is not known here says nothing, as in JSON Schema itself.

use regex::RegexBuilder;
use serde_json::{Map, Value as Json};

/// References and nested schemas that are followed. A schema that refers to itself ends where its value does.
const MAX_DEPTH: usize = 64;

/// Schemas that are looked at. `anyOf` within `anyOf` doubles them; an import of a thousand fields needs thousands.
const MAX_STEPS: usize = 100_000;

/// What is wrong with a value; a status has room for few.
const MAX_FOUND: usize = 20;

/// What a compiled pattern may take.
const MAX_PATTERN_BYTES: usize = 256 * 1024;

/// Where references lead.
pub(super) trait Library {
    /// The schema behind `local://name`.
    fn local(&self, name: &str) -> Option<&Json>;
    /// The schema in a file of the blueprint.
    fn file(&self, path: &str) -> Option<Result<Json, String>>;
}

/// What does not fit, each with its place (`.a[2].b`); empty if it fits.
pub(super) fn violations(library: &dyn Library, schema: &Json, value: &Json) -> Vec<(String, String)> {
    let mut check = Check { library, found: Vec::new(), steps: 0 };
    check.one(&Scope { root: schema, depth: 0 }, schema, value, "");
    check.found
}

struct Check<'a> {
    library: &'a dyn Library,
    found: Vec<(String, String)>,
    steps: usize,
}

/// The document that `#` means, and how deep we are.
#[derive(Clone, Copy)]
struct Scope<'a> {
    root: &'a Json,
    depth: usize,
}

impl Check<'_> {
    fn one(&mut self, scope: &Scope<'_>, schema: &Json, value: &Json, at: &str) {
        self.steps += 1;
        if self.found.len() >= MAX_FOUND {
            return;
        }
        if scope.depth > MAX_DEPTH || self.steps > MAX_STEPS {
            return self.say(at, "the schema is too deep, or refers to itself");
        }
        let scope = Scope { root: scope.root, depth: scope.depth + 1 };
        let keywords = match schema {
            Json::Bool(true) | Json::Null => return,
            Json::Bool(false) => return self.say(at, "nothing is allowed here"),
            Json::Object(keywords) => keywords,
            Json::Number(_) | Json::String(_) | Json::Array(_) => {
                return self.say(at, "its schema is no schema");
            }
        };
        if let Some(reference) = keywords.get("$ref") {
            self.reference(&scope, reference, value, at);
        }
        self.any_kind(keywords, value, at);
        match value {
            Json::String(text) => self.text(keywords, text, at),
            Json::Number(number) => self.number(keywords, number.as_f64().unwrap_or_default(), at),
            Json::Array(items) => self.list(&scope, keywords, items, at),
            Json::Object(fields) => self.map(&scope, keywords, fields, at),
            Json::Null | Json::Bool(_) => {}
        }
        self.combined(&scope, keywords, value, at);
    }

    fn reference(&mut self, scope: &Scope<'_>, reference: &Json, value: &Json, at: &str) {
        let Some(reference) = reference.as_str() else { return self.say(at, "$ref must be a string") };
        let (document, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let missing = |check: &mut Self| check.say(at, &format!("the schema {reference:?} is not there"));
        let read;
        let root = if document.is_empty() {
            scope.root
        } else if let Some(name) = document.strip_prefix("local://") {
            let Some(found) = self.library.local(name) else { return missing(self) };
            found
        } else if let Some(path) = document.strip_prefix("blueprint://") {
            match self.library.file(path) {
                Some(Ok(found)) => read = found,
                Some(Err(why)) => return self.say(at, &format!("the schema {reference:?}: {why}")),
                None => return missing(self),
            }
            &read
        } else {
            return self.say(at, &format!("the schema {reference:?} is not in the blueprint"));
        };
        let Some(schema) = root.pointer(pointer) else { return missing(self) };
        self.one(&Scope { root, depth: scope.depth }, schema, value, at);
    }

    fn any_kind(&mut self, keywords: &Map<String, Json>, value: &Json, at: &str) {
        if let Some(wanted) = keywords.get("type") {
            let names: Vec<&str> = match wanted {
                Json::String(name) => vec![name],
                Json::Array(names) => names.iter().filter_map(Json::as_str).collect(),
                Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => Vec::new(),
            };
            let nullable = keywords.get("nullable") == Some(&Json::Bool(true)) && value.is_null();
            if !nullable && !names.iter().any(|name| is_a(value, name)) {
                self.say(at, &format!("must be a {}, and is a {}", names.join(" or "), kind(value)));
            }
        }
        if let Some(Json::Array(allowed)) = keywords.get("enum")
            && !allowed.iter().any(|other| same(other, value))
        {
            let shown: Vec<String> = allowed.iter().take(MAX_FOUND).map(Json::to_string).collect();
            self.say(at, &format!("must be one of {}", shown.join(", ")));
        }
        if let Some(wanted) = keywords.get("const")
            && !same(wanted, value)
        {
            self.say(at, &format!("must be {wanted}"));
        }
    }

    fn size(&mut self, keywords: &Map<String, Json>, [min, max]: [&str; 2], size: usize, of: &str, at: &str) {
        let limit = |name| keywords.get(name).and_then(Json::as_u64).and_then(|it| usize::try_from(it).ok());
        if let Some(least) = limit(min).filter(|least| size < *least) {
            self.say(at, &format!("must have at least {least} {of}"));
        }
        if let Some(most) = limit(max).filter(|most| size > *most) {
            self.say(at, &format!("must have at most {most} {of}"));
        }
    }

    fn text(&mut self, keywords: &Map<String, Json>, text: &str, at: &str) {
        self.size(keywords, ["minLength", "maxLength"], text.chars().count(), "characters", at);
        if let Some(pattern) = keywords.get("pattern").and_then(Json::as_str) {
            match matches(pattern, text) {
                Ok(true) => {}
                Ok(false) => self.say(at, &format!("must match {pattern:?}")),
                Err(why) => self.say(at, &why),
            }
        }
    }

    fn number(&mut self, keywords: &Map<String, Json>, value: f64, at: &str) {
        let limit = |name: &str| keywords.get(name).and_then(Json::as_f64);
        // In draft 4 the exclusive ones are booleans beside the others.
        let exclusive = |name: &str| keywords.get(name) == Some(&Json::Bool(true));
        let at_least = limit("minimum").filter(|_| !exclusive("exclusiveMinimum"));
        let at_most = limit("maximum").filter(|_| !exclusive("exclusiveMaximum"));
        let above =
            limit("exclusiveMinimum").or_else(|| limit("minimum").filter(|_| exclusive("exclusiveMinimum")));
        let below =
            limit("exclusiveMaximum").or_else(|| limit("maximum").filter(|_| exclusive("exclusiveMaximum")));
        if let Some(limit) = at_least.filter(|limit| value < *limit) {
            self.say(at, &format!("must be at least {limit}"));
        }
        if let Some(limit) = at_most.filter(|limit| value > *limit) {
            self.say(at, &format!("must be at most {limit}"));
        }
        if let Some(limit) = above.filter(|limit| value <= *limit) {
            self.say(at, &format!("must be more than {limit}"));
        }
        if let Some(limit) = below.filter(|limit| value >= *limit) {
            self.say(at, &format!("must be less than {limit}"));
        }
        if let Some(unit) = limit("multipleOf").filter(|unit| *unit > 0.0) {
            let times = value / unit;
            if (times - times.round()).abs() > 1e-9 {
                self.say(at, &format!("must be a multiple of {unit}"));
            }
        }
    }

    fn list(&mut self, scope: &Scope<'_>, keywords: &Map<String, Json>, items: &[Json], at: &str) {
        self.size(keywords, ["minItems", "maxItems"], items.len(), "items", at);
        if keywords.get("uniqueItems") == Some(&Json::Bool(true)) {
            self.steps += items.len().saturating_mul(items.len()) / 2;
            let repeats = |at: usize, item: &Json| items.iter().take(at).any(|other| same(other, item));
            if self.steps <= MAX_STEPS && items.iter().enumerate().any(|(at, item)| repeats(at, item)) {
                self.say(at, "must not have the same item twice");
            }
        }
        let (first, rest) = match (keywords.get("prefixItems"), keywords.get("items")) {
            (Some(Json::Array(first)), rest) => (first.as_slice(), rest),
            (_, Some(Json::Array(first))) => (first.as_slice(), keywords.get("additionalItems")),
            (_, rest) => (&[][..], rest),
        };
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or(rest) {
                self.one(scope, schema, item, &format!("{at}[{index}]"));
            }
        }
        if let Some(schema) = keywords.get("contains")
            && !items.iter().any(|item| self.fits(scope, schema, item))
        {
            self.say(at, "has no item of the kind that it must contain");
        }
    }

    fn map(&mut self, scope: &Scope<'_>, keywords: &Map<String, Json>, fields: &Map<String, Json>, at: &str) {
        if let Some(Json::Array(required)) = keywords.get("required") {
            for name in required.iter().filter_map(Json::as_str).filter(|name| !fields.contains_key(*name)) {
                self.say(&format!("{at}.{name}"), "is required");
            }
        }
        self.size(keywords, ["minProperties", "maxProperties"], fields.len(), "fields", at);
        let nothing = Map::new();
        let object = |name: &str| keywords.get(name).and_then(Json::as_object).unwrap_or(&nothing);
        let (properties, patterns) = (object("properties"), object("patternProperties"));
        for (name, field) in fields {
            let place = format!("{at}.{name}");
            let mut known = false;
            if let Some(schema) = properties.get(name) {
                known = true;
                self.one(scope, schema, field, &place);
            }
            for (pattern, schema) in patterns {
                match matches(pattern, name) {
                    Ok(true) => {
                        known = true;
                        self.one(scope, schema, field, &place);
                    }
                    Ok(false) => {}
                    Err(why) => self.say(at, &why),
                }
            }
            match keywords.get("additionalProperties") {
                Some(Json::Bool(false)) if !known => self.say(&place, "is not known to its schema"),
                Some(schema) if !known => self.one(scope, schema, field, &place),
                Some(_) | None => {}
            }
            if let Some(schema) = keywords.get("propertyNames") {
                self.one(scope, schema, &Json::String(name.clone()), &place);
            }
        }
    }

    fn combined(&mut self, scope: &Scope<'_>, keywords: &Map<String, Json>, value: &Json, at: &str) {
        let schemas = |name: &str| keywords.get(name).and_then(Json::as_array);
        for schema in schemas("allOf").into_iter().flatten() {
            self.one(scope, schema, value, at);
        }
        if let Some(schemas) = schemas("anyOf")
            && !schemas.iter().any(|schema| self.fits(scope, schema, value))
        {
            self.say(at, "fits none of the schemas of its anyOf");
        }
        if let Some(schemas) = schemas("oneOf") {
            let fitting = schemas.iter().filter(|schema| self.fits(scope, schema, value)).count();
            if fitting != 1 {
                self.say(at, &format!("fits {fitting} of the schemas of its oneOf, and must fit one"));
            }
        }
        if let Some(schema) = keywords.get("not")
            && self.fits(scope, schema, value)
        {
            self.say(at, "fits what it must not");
        }
        if let Some(condition) = keywords.get("if") {
            let branch = if self.fits(scope, condition, value) { "then" } else { "else" };
            if let Some(schema) = keywords.get(branch) {
                self.one(scope, schema, value, at);
            }
        }
    }

    fn fits(&mut self, scope: &Scope<'_>, schema: &Json, value: &Json) -> bool {
        let mut inner = Check { library: self.library, found: Vec::new(), steps: self.steps };
        inner.one(scope, schema, value, "");
        self.steps = inner.steps;
        inner.found.is_empty()
    }

    fn say(&mut self, at: &str, message: &str) {
        if self.found.len() < MAX_FOUND {
            self.found.push((at.to_owned(), message.to_owned()));
        }
    }
}

fn matches(pattern: &str, text: &str) -> Result<bool, String> {
    let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
    compiled.map(|regex| regex.is_match(text)).map_err(|why| format!("bad pattern {pattern:?}: {why}"))
}

fn is_a(value: &Json, name: &str) -> bool {
    match name {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        name => kind(value) == name,
    }
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// JSON Schema knows numbers, not how they are written: 1 is 1.0.
fn same(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Json::Object(left), Json::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| same(left, right)))
        }
        (left, right) => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Types(Json);

    impl Library for Types {
        fn local(&self, name: &str) -> Option<&Json> {
            self.0.get(name)
        }

        fn file(&self, path: &str) -> Option<Result<Json, String>> {
            (path == "port.json").then(|| Ok(json!({"type": "integer", "maximum": 65535})))
        }
    }

    fn told(schema: &Json, value: &Json) -> String {
        let types =
            Types(json!({"name": {"type": "string", "minLength": 2}, "loop": {"$ref": "local://loop"}}));
        let found = violations(&types, schema, value);
        found.into_iter().map(|(at, what)| format!("{at} {what}")).collect::<Vec<_>>().join("; ")
    }

    /// A schema, what fits it, and what does not.
    fn check(schema: &Json, good: &[Json], bad: &[Json]) {
        for value in good {
            assert_eq!(told(schema, value), "", "{schema} {value}");
        }
        for value in bad {
            assert_ne!(told(schema, value), "", "{schema} {value}");
        }
    }

    #[test]
    fn the_keywords_mean_what_json_schema_says() {
        check(&json!({"type": "string"}), &[json!("a")], &[json!(1), json!(null)]);
        check(&json!({"type": ["string", "null"]}), &[json!("a"), json!(null)], &[json!(1)]);
        check(&json!({"type": "integer"}), &[json!(1), json!(1.0)], &[json!(1.5), json!("1")]);
        check(&json!({"enum": ["a", 1]}), &[json!("a"), json!(1.0)], &[json!("b")]);
        check(&json!({"const": {"a": [1]}}), &[json!({"a": [1]})], &[json!({"a": [2]})]);
        check(
            &json!({"minLength": 2, "maxLength": 3, "pattern": "^h"}),
            &[json!("hé")],
            &[json!("h"), json!("hhhh"), json!("ab")],
        );
        check(
            &json!({"minimum": 1, "exclusiveMaximum": 3, "multipleOf": 0.5}),
            &[json!(1), json!(2.5)],
            &[json!(0.5), json!(3), json!(1.2)],
        );
        check(&json!({"minimum": 1, "exclusiveMinimum": true}), &[json!(2)], &[json!(1)]);
        check(
            &json!({"items": {"type": "number"}, "minItems": 1, "uniqueItems": true}),
            &[json!([1, 2])],
            &[json!([]), json!(["a"]), json!([1, 1.0])],
        );
        check(
            &json!({"prefixItems": [{"type": "string"}], "items": {"type": "number"}}),
            &[json!(["a", 1])],
            &[json!([1]), json!(["a", "b"])],
        );
        check(&json!({"contains": {"const": 1}}), &[json!([2, 1])], &[json!([2])]);
        check(
            &json!({"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false, "patternProperties": {"^x-": true}}),
            &[json!({"a": "b", "x-y": 1})],
            &[json!({}), json!({"a": 1}), json!({"a": "b", "c": 1})],
        );
        check(&json!({"anyOf": [{"type": "string"}, {"minimum": 5}]}), &[json!("a"), json!(6)], &[json!(1)]);
        check(
            &json!({"oneOf": [{"type": "number"}, {"type": "integer"}]}),
            &[json!(1.5)],
            &[json!(1), json!("a")],
        );
        check(&json!({"not": {"type": "string"}}), &[json!(1)], &[json!("a")]);
        check(
            &json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}),
            &[json!({"a": 1, "b": 1}), json!({"c": 1})],
            &[json!({"a": 1}), json!({})],
        );
        check(
            &json!({"$ref": "#/definitions/p", "definitions": {"p": {"type": "string"}}}),
            &[json!("a")],
            &[json!(1)],
        );
        check(&json!({"$ref": "local://name"}), &[json!("ab")], &[json!("a")]);
        check(
            &json!({"properties": {"port": {"$ref": "blueprint://port.json"}}}),
            &[json!({"port": 80})],
            &[json!({"port": 99999})],
        );
        check(&json!({"unknown": 1, "format": "email", "description": "x"}), &[json!(1)], &[]);
        check(&json!(true), &[json!(1)], &[]);
        check(&json!(false), &[], &[json!(1)]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let schema = json!({"type": "object", "properties": {"a": {"items": {"properties": {"b": {"type": "string"}}, "required": ["c"]}}}});
        assert_eq!(
            told(&schema, &json!({"a": [{"c": 1}, {"b": 1}]})),
            ".a[1].c is required; .a[1].b must be a string, and is a number"
        );
        assert_eq!(
            told(&json!({"$ref": "local://nope"}), &json!(1)),
            " the schema \"local://nope\" is not there"
        );
        assert_eq!(
            told(&json!({"$ref": "cd://x"}), &json!(1)),
            " the schema \"cd://x\" is not in the blueprint"
        );
        assert!(told(&json!({"pattern": "("}), &json!("a")).contains("bad pattern"));
    }

    #[test]
    fn a_schema_that_never_ends_does() {
        assert!(told(&json!({"$ref": "#"}), &json!(1)).contains("refers to itself"));
        assert!(told(&json!({"$ref": "local://loop"}), &json!(1)).contains("refers to itself"));
        let mut definitions = Map::from_iter([("d0".to_owned(), json!({"type": "string"}))]);
        for level in 1..30 {
            let below = json!({"$ref": format!("#/definitions/d{}", level - 1)});
            definitions.insert(format!("d{level}"), json!({"anyOf": [below, below]}));
        }
        let doubling = json!({"$ref": "#/definitions/d29", "definitions": definitions});
        assert_ne!(told(&doubling, &json!(1)), "");
        let recursive = json!({"properties": {"next": {"$ref": "#"}}, "required": ["v"]});
        assert_eq!(
            told(&recursive, &json!({"v": 1, "next": {"v": 1, "next": {}}})),
            ".next.next.v is required"
        );
    }
}
