//! What is a value while a template is rendered?
//!
//! Go's templates pass maps by reference, and `set` changes them in place: so lists and maps live on a heap and values
//! point into it. The heap also keeps the budget. Nothing is freed before the end, so what was made is what is held;
//! and a map that contains itself, or is nested a million deep, is only a few numbers that are dropped one by one.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map as JsonMap, Number, Value as Json};

use super::{Limits, MissingKey, Outcome, fault, over_limit};

/// How deep a value is looked into. The API server's own JSON is nested 128 deep at most.
pub(super) const MAX_VALUE_DEPTH: usize = 128;

/// What a value takes on the heap besides its text.
const CELL_BYTES: usize = 48;

pub(super) type Map = BTreeMap<Arc<str>, Value>;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Nil(Nothing),
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    List(ListId),
    Map(MapId),
}

/// Why there is nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Nothing {
    /// The key under which nothing was found.
    pub(super) key: Option<Arc<str>>,
    /// Straight from a list or map, where Go still knows that something could be there: asking it for a field is an
    /// error. Once passed through a pipeline it is plainly nothing, and so are its fields.
    pub(super) element: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListId(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapId(usize);

impl Value {
    pub(super) const NIL: Self = Self::Nil(Nothing { key: None, element: false });

    pub(super) fn missing(key: &str) -> Self {
        Self::Nil(Nothing { key: Some(Arc::from(key)), element: true })
    }

    pub(super) fn is_nil(&self) -> bool {
        matches!(self, Self::Nil(_))
    }

    /// Go's name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil(_) => "nil",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "[]interface {}",
            Self::Map(_) => "map[string]interface {}",
        }
    }

    /// For messages: what it is, and if it is nothing, where it was sought.
    pub(super) fn described(&self) -> String {
        match self {
            Self::Nil(Nothing { key: Some(key), .. }) => format!("nothing ({key:?} is not set)"),
            Self::Nil(_) => "nil".to_owned(),
            Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::List(_) | Self::Map(_) => {
                self.type_name().to_owned()
            }
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// Lists, maps, and what may still be used up.
#[derive(Debug)]
pub(super) struct Heap {
    lists: Vec<Rc<[Value]>>,
    maps: Vec<Map>,
    limits: Limits,
    steps: u64,
    memory: usize,
    pub(super) missing_key: MissingKey,
}

impl Heap {
    pub(super) fn new(limits: Limits, missing_key: MissingKey) -> Self {
        Self { lists: Vec::new(), maps: Vec::new(), limits, steps: 0, memory: 0, missing_key }
    }

    /// Counts work.
    pub(super) fn step(&mut self, steps: usize) -> Outcome<()> {
        self.steps = self.steps.saturating_add(u64::try_from(steps).unwrap_or(u64::MAX));
        if self.steps > self.limits.steps {
            return over_limit(format_args!("stopped after {} steps", self.limits.steps));
        }
        Ok(())
    }

    /// Counts memory, before it is taken.
    pub(super) fn take(&mut self, bytes: usize) -> Outcome<()> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > self.limits.memory_bytes {
            return over_limit(format_args!("its values take more than {} bytes", self.limits.memory_bytes));
        }
        Ok(())
    }

    pub(super) fn memory_left(&self) -> usize {
        self.limits.memory_bytes.saturating_sub(self.memory)
    }

    pub(super) fn text(&mut self, text: impl AsRef<str>) -> Outcome<Value> {
        let text = text.as_ref();
        self.take(text.len())?;
        Ok(Value::Text(Arc::from(text)))
    }

    pub(super) fn new_list(&mut self, items: impl Into<Rc<[Value]>>) -> Outcome<Value> {
        let items = items.into();
        self.take(CELL_BYTES.saturating_mul(items.len().saturating_add(1)))?;
        self.step(items.len())?;
        self.lists.push(items);
        Ok(Value::List(ListId(self.lists.len() - 1)))
    }

    pub(super) fn new_map(&mut self, entries: Map) -> Outcome<Value> {
        self.take(CELL_BYTES.saturating_mul(entries.len().saturating_add(1)))?;
        self.step(entries.len())?;
        self.maps.push(entries);
        Ok(Value::Map(MapId(self.maps.len() - 1)))
    }

    pub(super) fn list(&self, list: ListId) -> Rc<[Value]> {
        self.lists.get(list.0).map(Rc::clone).unwrap_or_default()
    }

    pub(super) fn get(&self, map: MapId, key: &str) -> Option<&Value> {
        self.maps.get(map.0)?.get(key)
    }

    pub(super) fn len(&self, map: MapId) -> usize {
        self.maps.get(map.0).map_or(0, Map::len)
    }

    /// As it is now: whoever walks it may change it meanwhile.
    pub(super) fn entries(&mut self, map: MapId) -> Outcome<Map> {
        self.step(self.len(map))?;
        Ok(self.maps.get(map.0).cloned().unwrap_or_default())
    }

    pub(super) fn set(&mut self, map: MapId, key: &str, value: Value) -> Outcome<()> {
        self.take(CELL_BYTES.saturating_add(key.len()))?;
        if let Some(entries) = self.maps.get_mut(map.0) {
            entries.insert(Arc::from(key), value);
        }
        Ok(())
    }

    pub(super) fn unset(&mut self, map: MapId, key: &str) {
        if let Some(entries) = self.maps.get_mut(map.0) {
            entries.remove(key);
        }
    }

    /// What Go takes for true.
    pub(super) fn truth(&self, value: &Value) -> bool {
        match value {
            Value::Nil(_) => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) => !self.list(*list).is_empty(),
            Value::Map(map) => self.len(*map) > 0,
        }
    }

    /// The value under a key, or nothing that remembers the key.
    pub(super) fn at_key(&self, map: MapId, key: &str) -> Value {
        match self.get(map, key) {
            Some(Value::Nil(_)) | None => Value::missing(key),
            Some(value) => value.clone(),
        }
    }

    /// An item of a list, which remembers where nothing was found.
    pub(super) fn element(&self, item: &Value) -> Value {
        match item {
            Value::Nil(nothing) => Value::Nil(Nothing { key: nothing.key.clone(), element: true }),
            other => other.clone(),
        }
    }

    /// Values as JSON has them: every number is a `float64`, as for Go.
    pub(super) fn import(&mut self, json: &Json) -> Outcome<Value> {
        self.import_at(json, 0)
    }

    fn import_at(&mut self, json: &Json, depth: usize) -> Outcome<Value> {
        within_depth(depth)?;
        match json {
            Json::Null => Ok(Value::NIL),
            Json::Bool(value) => Ok(Value::Bool(*value)),
            Json::Number(number) => Ok(Value::Float(number.as_f64().unwrap_or_default())),
            Json::String(text) => self.text(text),
            Json::Array(items) => {
                let items: Outcome<Vec<Value>> = items.iter().map(|item| self.import_at(item, depth + 1)).collect();
                self.new_list(items?)
            }
            Json::Object(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    self.take(key.len())?;
                    map.insert(Arc::from(key.as_str()), self.import_at(value, depth + 1)?);
                }
                self.new_map(map)
            }
        }
    }

    /// The way back. A whole `float64` becomes a whole number again, as Go writes it.
    pub(super) fn export(&mut self, value: &Value) -> Outcome<Json> {
        self.export_at(value, 0)
    }

    fn export_at(&mut self, value: &Value, depth: usize) -> Outcome<Json> {
        within_depth(depth)?;
        self.step(1)?;
        Ok(match value {
            Value::Nil(_) => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Float(value) => Json::Number(json_number(*value)),
            Value::Text(text) => {
                self.take(text.len())?;
                Json::String(text.to_string())
            }
            Value::List(list) => {
                let items = self.list(*list);
                self.take(items.len().saturating_mul(CELL_BYTES))?;
                let items: Outcome<Vec<Json>> = items.iter().map(|item| self.export_at(item, depth + 1)).collect();
                Json::Array(items?)
            }
            Value::Map(map) => {
                let mut entries = JsonMap::new();
                for (key, value) in self.entries(*map)? {
                    self.take(key.len().saturating_add(CELL_BYTES))?;
                    entries.insert(key.to_string(), self.export_at(&value, depth + 1)?);
                }
                Json::Object(entries)
            }
        })
    }

    /// A copy that shares no map with the original.
    pub(super) fn deep_copy(&mut self, value: &Value) -> Outcome<Value> {
        self.deep_copy_at(value, 0)
    }

    fn deep_copy_at(&mut self, value: &Value, depth: usize) -> Outcome<Value> {
        within_depth(depth)?;
        self.step(1)?;
        match value {
            Value::Nil(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => Ok(value.clone()),
            Value::List(list) => {
                let items = self.list(*list);
                let items: Outcome<Vec<Value>> =
                    items.iter().map(|item| self.deep_copy_at(item, depth + 1)).collect();
                self.new_list(items?)
            }
            Value::Map(map) => {
                let mut entries = Map::new();
                for (key, value) in self.entries(*map)? {
                    entries.insert(key, self.deep_copy_at(&value, depth + 1)?);
                }
                self.new_map(entries)
            }
        }
    }

    /// Go's `reflect.DeepEqual`: an `int` never equals a `float64`.
    pub(super) fn deep_equal(&mut self, left: &Value, right: &Value) -> Outcome<bool> {
        self.deep_equal_at(left, right, 0)
    }

    fn deep_equal_at(&mut self, left: &Value, right: &Value, depth: usize) -> Outcome<bool> {
        within_depth(depth)?;
        self.step(1)?;
        Ok(match (left, right) {
            (Value::Nil(_), Value::Nil(_)) => true,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Int(left), Value::Int(right)) => left == right,
            (Value::Float(left), Value::Float(right)) => left == right,
            (Value::Text(left), Value::Text(right)) => left == right,
            (Value::List(left), Value::List(right)) => {
                let (left, right) = (self.list(*left), self.list(*right));
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right.iter()) {
                    if !self.deep_equal_at(left, right, depth + 1)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Map(left), Value::Map(right)) => {
                let (left, right) = (self.entries(*left)?, self.entries(*right)?);
                if left.len() != right.len() {
                    return Ok(false);
                }
                for ((left_key, left), (right_key, right)) in left.iter().zip(right.iter()) {
                    if left_key != right_key || !self.deep_equal_at(left, right, depth + 1)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }

    /// Where nothing would be printed, and somebody meant something.
    pub(super) fn refuse_nothing(&self, value: &Value) -> Outcome<()> {
        match (self.missing_key, value) {
            (MissingKey::Refuse, Value::Nil(Nothing { key: Some(key), .. })) => {
                fault(format_args!("the key {key:?} is not set"))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn within_depth(depth: usize) -> Outcome<()> {
    if depth > MAX_VALUE_DEPTH {
        return over_limit(format_args!("a value is nested more than {MAX_VALUE_DEPTH} deep, or contains itself"));
    }
    Ok(())
}

fn json_number(value: f64) -> Number {
    // Beyond 2^53 not every whole number is a float64; up to 1e18 it still fits an i64, and Go writes it in full.
    let whole = value.fract() == 0.0 && value.abs() < 1e18;
    if whole { Number::from(value as i64) } else { Number::from_f64(value).unwrap_or_else(|| Number::from(0)) }
}
