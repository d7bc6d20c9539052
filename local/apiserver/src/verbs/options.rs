//! What did the query ask for besides the verb?

use serde_json::json;

use super::owners::MANAGER_MAX;
use super::{Call, Verb};
use crate::status::Status;
use crate::validation::FieldError;

/// The options of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) validation: FieldValidation,
}

/// What happens to fields nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl WriteOptions {
    pub(super) fn read(call: &Call<'_>) -> Result<WriteOptions, Status> {
        let kind = match call.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            Verb::Get | Verb::List | Verb::Watch | Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
        };
        let mut errors = Vec::new();
        let dry_run = dry_run(call.query.all("dryRun"), &mut errors);
        let validation = match call.query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let allowed = ["Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", &json!(other), &allowed));
                FieldValidation::Ignore
            }
        };
        let manager = call.query.get("fieldManager").unwrap_or_default();
        if manager.len() > MANAGER_MAX {
            let why = format!("must be no more than {MANAGER_MAX} characters");
            errors.push(FieldError::invalid("fieldManager", &json!(manager), why));
        } else if manager.chars().any(char::is_control) {
            let why = "should only contain printable characters";
            errors.push(FieldError::invalid("fieldManager", &json!(manager), why));
        }
        let applying = call.verb == Verb::Patch && call.content_type == "application/apply-patch+yaml";
        if applying && manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if call.verb == Verb::Patch && !applying && call.query.get("force").is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if errors.is_empty() {
            Ok(WriteOptions { dry_run, validation })
        } else {
            Err(Status::invalid_options(kind, errors))
        }
    }
}

/// Whether to do everything but the write.
pub(super) fn dry_run<'a>(asked: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let mut dry = false;
    for value in asked {
        match value {
            "" => {}
            "All" => dry = true,
            other => errors.push(FieldError::not_supported("dryRun", &json!(other), &["All"])),
        }
    }
    dry
}
