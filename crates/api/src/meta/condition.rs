//! How is a condition written? Here and nowhere else (I12).
//!
//! `set` stamps `lastTransitionTime` only when the status value flips, keeps the list sorted by type,
//! always says which generation was looked at, and leaves conditions it was not told about alone.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{Schema, SchemaGenerator, json_schema};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::reason::Reason;
use super::text;

/// What Kubernetes itself allows in a condition's message; longer texts are cut, and say so.
pub const MAX_MESSAGE_CHARS: usize = 32_768;

/// Far more condition types than any of our kinds sets, with room for those of others.
pub const MAX_CONDITIONS: usize = 64;

/// The three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What is to be said: everything of a condition but when it flipped and what was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    pub type_: String,
    pub status: Status,
    pub reason: Reason,
    pub message: String,
}

impl NewCondition {
    /// It holds.
    pub fn yes(type_: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self { type_: type_.into(), status: Status::True, reason, message: message.into() }
    }

    /// It does not hold.
    pub fn no(type_: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self { type_: type_.into(), status: Status::False, reason, message: message.into() }
    }

    /// It cannot be told.
    pub fn unknown(type_: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self { type_: type_.into(), status: Status::Unknown, reason, message: message.into() }
    }
}

/// Writes one condition into the list; true when anything in the list changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    new: NewCondition,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let NewCondition { type_, status, reason, message } = new;
    let before = conditions.iter().find(|condition| condition.type_ == type_);
    let last_transition_time = match before {
        Some(before) if before.status == status.as_str() => before.last_transition_time.clone(),
        _ => Time(whole_seconds(now)),
    };
    let condition = Condition {
        type_,
        status: status.as_str().to_owned(),
        reason: reason.as_str().to_owned(),
        message: text::head(message, MAX_MESSAGE_CHARS),
        observed_generation,
        last_transition_time,
    };
    if before == Some(&condition) && conditions.is_sorted_by(|a, b| a.type_ < b.type_) {
        return false;
    }
    // A list with a type twice can only come from outside; the first one stood, the others go.
    conditions.retain(|other| other.type_ != condition.type_);
    conditions.push(condition);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    true
}

/// The condition of that type, if it was ever set.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of that type is there and `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Removes a condition that no longer applies; true when it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// The schema of a `conditions` field: a map keyed by `type`, with the limits that Kubernetes itself has.
pub fn list_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "What is known about the object, one entry per type.",
        "type": "array",
        "maxItems": MAX_CONDITIONS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One aspect of the object's state.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "When `status` last changed its value.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "The details, for people.",
                    "type": "string",
                    "maxLength": MAX_MESSAGE_CHARS,
                },
                "observedGeneration": {
                    "description": "The metadata.generation this was said about.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "reason": {
                    "description": "Why, as one stable word.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {
                    "description": "Whether it holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "type": {
                    "description": "Which aspect this is about.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
        },
    })
}

/// API servers keep whole seconds: what we hold in memory should equal what we read back.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: bool, message: &str) -> NewCondition {
        if status {
            NewCondition::yes("Ready", Reason::Synced, message)
        } else {
            NewCondition::no("Ready", Reason::Failed, message)
        }
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_value_does() {
        let mut list = Vec::new();
        assert!(set(&mut list, ready(true, "a"), Some(1), at(100)));
        assert!(set(&mut list, ready(true, "b"), Some(2), at(200)));
        assert_eq!(list[0].last_transition_time.0, at(100));
        assert_eq!((list[0].message.as_str(), list[0].observed_generation), ("b", Some(2)));
        assert!(set(&mut list, ready(false, "c"), Some(2), at(300)));
        assert_eq!(list[0].last_transition_time.0, at(300));
    }

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let mut list = Vec::new();
        set(&mut list, ready(true, "a"), Some(1), at(100));
        let before = list.clone();
        assert!(!set(&mut list, ready(true, "a"), Some(1), at(999)));
        assert_eq!(list, before);
    }

    #[test]
    fn conditions_are_sorted_and_those_of_others_are_kept() {
        let mut list = Vec::new();
        set(&mut list, NewCondition::yes("example.com/Theirs", Reason::Synced, ""), Some(1), at(1));
        set(&mut list, ready(true, ""), Some(1), at(1));
        set(&mut list, NewCondition::unknown("Frozen", Reason::Frozen, ""), Some(1), at(1));
        let types: Vec<_> = list.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Frozen", "Ready", "example.com/Theirs"]);
    }

    #[test]
    fn a_type_listed_twice_is_listed_once_after_a_write() {
        let mut list = Vec::new();
        set(&mut list, ready(true, "first"), Some(1), at(1));
        list.push(list[0].clone());
        assert!(set(&mut list, ready(true, "first"), Some(1), at(2)));
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn the_time_kept_is_the_time_an_api_server_gives_back() {
        let mut list = Vec::new();
        let now = Timestamp::from_millisecond(1_500).unwrap();
        set(&mut list, ready(true, ""), None, now);
        let read: Vec<Condition> = serde_json::from_value(serde_json::to_value(&list).unwrap()).unwrap();
        assert_eq!(read, list);
    }

    #[test]
    fn a_message_too_long_for_the_schema_is_cut_and_says_so() {
        let mut list = Vec::new();
        set(&mut list, ready(true, &"é".repeat(MAX_MESSAGE_CHARS + 1)), None, at(1));
        assert_eq!(list[0].message.chars().count(), MAX_MESSAGE_CHARS);
        assert!(list[0].message.ends_with("(cut)"));
    }
}
