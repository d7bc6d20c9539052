//! What does a document that somebody wrote hold? Leniently read, with all problems and warnings kept.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::{Checked, Fault, Problem, Warning};

/// What was found wrong or strange in one document so far.
#[derive(Debug)]
pub(super) struct Reading {
    document: String,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Warning>,
}

impl Reading {
    pub(super) fn new(document: impl Into<String>) -> Self {
        Self { document: document.into(), problems: Vec::new(), warnings: Vec::new() }
    }

    pub(super) fn finish<T>(self, value: T) -> Checked<T> {
        if self.problems.is_empty() { Ok((value, self.warnings)) } else { Err(self.problems) }
    }

    pub(super) fn problem(&mut self, field: &str, message: impl fmt::Display) {
        self.fault(Fault::Blueprint, field, message);
    }

    pub(super) fn fault(&mut self, fault: Fault, field: &str, message: impl fmt::Display) {
        let place = self.place(field);
        self.problems.push(Problem::of(fault, place, message));
    }

    /// Takes over what another reading found.
    pub(super) fn absorb(&mut self, other: Self) {
        self.problems.extend(other.problems);
        self.warnings.extend(other.warnings);
    }

    pub(super) fn warning(&mut self, field: &str, message: impl fmt::Display) {
        let place = self.place(field);
        self.warnings.push(Warning { place, message: message.to_string() });
    }

    fn place(&self, field: &str) -> String {
        match field.trim_start_matches('.') {
            "" => self.document.clone(),
            field => format!("{}: {field}", self.document),
        }
    }

    /// Warns about the keys that nobody reads.
    pub(super) fn only(&mut self, field: &str, map: &Map<String, Json>, known: &[&str]) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            self.warning(&format!("{field}.{key}"), "is not known, and passed over");
        }
    }

    pub(super) fn map<'a>(&mut self, field: &str, value: &'a Json) -> Option<&'a Map<String, Json>> {
        let map = value.as_object();
        if map.is_none() {
            self.problem(field, "must be a map");
        }
        map
    }

    /// Nothing is an empty list.
    pub(super) fn list<'a>(&mut self, field: &str, value: Option<&'a Json>) -> &'a [Json] {
        match value {
            Some(Json::Array(items)) => items,
            Some(Json::Null) | None => &[],
            Some(Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_)) => {
                self.problem(field, "must be a list");
                &[]
            }
        }
    }

    pub(super) fn text(&mut self, field: &str, map: &Map<String, Json>, key: &str) -> Option<String> {
        self.typed(field, map, key, "a string")
    }

    /// Present, and not empty.
    pub(super) fn required_text(
        &mut self,
        field: &str,
        map: &Map<String, Json>,
        key: &str,
    ) -> Option<String> {
        let before = self.problems.len();
        let text = self.text(field, map, key).filter(|text| !text.is_empty());
        if text.is_none() && self.problems.len() == before {
            self.problem(&format!("{field}.{key}"), "is required");
        }
        text
    }

    pub(super) fn boolean(&mut self, field: &str, map: &Map<String, Json>, key: &str) -> Option<bool> {
        self.typed(field, map, key, "true or false")
    }

    /// A field of some type of ours, or its default where it is not set. What it is instead is not told: it may have
    /// come from a Secret (I6).
    pub(super) fn typed<T: DeserializeOwned + Default>(
        &mut self,
        field: &str,
        map: &Map<String, Json>,
        key: &str,
        wanted: &str,
    ) -> T {
        match map.get(key) {
            Some(Json::Null) | None => T::default(),
            Some(value) => match serde_json::from_value(value.clone()) {
                Ok(value) => value,
                Err(_) => {
                    self.problem(&format!("{field}.{key}"), format_args!("must be {wanted}"));
                    T::default()
                }
            },
        }
    }
}
