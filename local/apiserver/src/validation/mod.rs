//! What is wrong with this object, in Kubernetes' words?
//!
//! A [`FieldError`] is one cause of a `422 Invalid` answer: the field, a machine-readable reason and a
//! message. Clients match on the first two and people read the third, so all three follow the wording of
//! kube-apiserver.

mod metadata;
mod names;
mod quantity;

use serde_json::Value;
use std::fmt;

pub(crate) use metadata::cannot_unmarshal;
pub use metadata::{Metadata, NameRule, metadata, metadata_shape, metadata_update};
pub use names::{
    dns1035_label, dns1123_label, dns1123_subdomain, label_value, path_segment_name, qualified_name,
};
pub use quantity::{Quantity, QuantityError};

/// The `reason` of one cause in a Status, closed as `metav1.CauseType` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CauseReason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    InternalError,
    TypeInvalid,
}

impl CauseReason {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::InternalError => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// How a message of this reason begins.
    const fn headline(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::InternalError => "Internal error",
        }
    }
}

impl fmt::Display for CauseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Dotted path; `<nil>` where the complaint is about no field in particular.
    pub field: String,
    pub reason: CauseReason,
    /// The body of the message, without the path in front.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl FieldError {
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Self {
        Self::valued(field, CauseReason::Invalid, value, detail.as_ref())
    }

    /// About a field as a whole, whose value is not repeated.
    pub(crate) fn wrong(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self::plain(field, CauseReason::Invalid, detail.as_ref())
    }

    /// One error for everything that is wrong with a value.
    pub(crate) fn each_invalid(field: &str, value: &Value, wrong: Vec<String>) -> Vec<Self> {
        wrong.into_iter().map(|why| Self::invalid(field, value, why)).collect()
    }

    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Self {
        Self::valued(field, CauseReason::TypeInvalid, value, detail.as_ref())
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::valued(field, CauseReason::Duplicate, value, "")
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::valued(field, CauseReason::NotFound, value, "")
    }

    pub fn not_supported<S: AsRef<str>>(field: impl Into<String>, value: &Value, supported: &[S]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| quote(s.as_ref())).collect();
        let detail = match quoted.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", quoted.join(", ")),
        };
        Self::valued(field, CauseReason::NotSupported, value, &detail)
    }

    pub fn required(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self::plain(field, CauseReason::Required, detail.as_ref())
    }

    pub fn forbidden(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self::plain(field, CauseReason::Forbidden, detail.as_ref())
    }

    /// `max` counts what the field counts: bytes for names and labels, characters for schema strings.
    pub fn too_long(field: impl Into<String>, max: u64) -> Self {
        Self::plain(field, CauseReason::TooLong, &format!("may not be more than {max} bytes"))
    }

    pub fn too_many(field: impl Into<String>, actual: usize, max: u64) -> Self {
        let plural = if max == 1 { "item" } else { "items" };
        Self::plain(field, CauseReason::TooMany, &format!("{actual}: must have at most {max} {plural}"))
    }

    pub fn internal(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self::plain(field, CauseReason::InternalError, detail.as_ref())
    }

    /// A value that was chosen by a rule author's `reason`.
    pub(crate) fn with_reason(field: String, reason: CauseReason, value: &Value, detail: &str) -> Self {
        match reason {
            CauseReason::Required | CauseReason::Forbidden => Self::plain(field, reason, detail),
            CauseReason::NotFound
            | CauseReason::Duplicate
            | CauseReason::Invalid
            | CauseReason::NotSupported
            | CauseReason::TooLong
            | CauseReason::TooMany
            | CauseReason::InternalError
            | CauseReason::TypeInvalid => Self::valued(field, reason, value, detail),
        }
    }

    fn valued(field: impl Into<String>, reason: CauseReason, value: &Value, detail: &str) -> Self {
        let shown = match value {
            Value::String(s) => quote(s),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                value.to_string()
            }
        };
        Self::said(field, reason, format!("{}: {shown}", reason.headline()), detail)
    }

    fn plain(field: impl Into<String>, reason: CauseReason, detail: &str) -> Self {
        Self::said(field, reason, reason.headline().to_owned(), detail)
    }

    fn said(field: impl Into<String>, reason: CauseReason, mut message: String, detail: &str) -> Self {
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        Self { field: field.into(), reason, message }
    }
}

/// The field path of a complaint about no field in particular.
pub const NO_FIELD: &str = "<nil>";

/// A string in double quotes, escaped as JSON does (Go's `%q` agrees on everything printable).
pub(crate) fn quote(s: &str) -> String {
    Value::String(s.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_have_the_shapes_clients_know() {
        let cases = [
            (FieldError::invalid("a.b", &json!("x"), "must be y"), "a.b: Invalid value: \"x\": must be y"),
            (FieldError::invalid("a", &json!(7), "no"), "a: Invalid value: 7: no"),
            (FieldError::invalid("a", &json!({"k": [1]}), "no"), "a: Invalid value: {\"k\":[1]}: no"),
            (
                FieldError::not_supported("m", &json!("c"), &["a", "b"]),
                "m: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ),
            (FieldError::required("n", ""), "n: Required value"),
            (FieldError::required("n", "name is required"), "n: Required value: name is required"),
            (FieldError::duplicate("t[1]", &json!("x")), "t[1]: Duplicate value: \"x\""),
            (FieldError::too_many("t", 4, 3), "t: Too many: 4: must have at most 3 items"),
            (FieldError::too_long("t", 63), "t: Too long: may not be more than 63 bytes"),
            (FieldError::forbidden("t", "no"), "t: Forbidden: no"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
