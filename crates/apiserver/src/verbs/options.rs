//! What did the query ask for besides the verb?

use super::owners::MANAGER_MAX;
use super::{Call, Verb};
use crate::status::{Cause, Status};

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
        let mut causes = Vec::new();
        let dry_run = dry_run(call.query.all("dryRun"), &mut causes);
        let validation = match call.query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                causes.push(Cause::not_supported("fieldValidation", other, &["Ignore", "Strict", "Warn"]));
                FieldValidation::Ignore
            }
        };
        let manager = call.query.get("fieldManager").unwrap_or_default();
        if manager.len() > MANAGER_MAX {
            let message =
                format!("Invalid value: {manager:?}: must be no more than {MANAGER_MAX} characters");
            causes.push(Cause::invalid("fieldManager", message));
        } else if manager.chars().any(char::is_control) {
            let message = format!("Invalid value: {manager:?}: should only contain printable characters");
            causes.push(Cause::invalid("fieldManager", message));
        }
        let applying = call.verb == Verb::Patch && call.content_type == "application/apply-patch+yaml";
        if applying && manager.is_empty() {
            causes.push(Cause::required("fieldManager", "Required value: is required for apply patch"));
        }
        if call.verb == Verb::Patch && !applying && call.query.get("force").is_some() {
            let message = "Forbidden: may not be specified for non-apply patch";
            causes.push(Cause::forbidden("force", message));
        }
        if causes.is_empty() {
            Ok(WriteOptions { dry_run, validation })
        } else {
            Err(Status::invalid_options(kind, causes))
        }
    }
}

/// Whether to do everything but the write.
pub(super) fn dry_run<'a>(asked: impl Iterator<Item = &'a str>, causes: &mut Vec<Cause>) -> bool {
    let mut dry = false;
    for value in asked {
        match value {
            "" => {}
            "All" => dry = true,
            other => causes.push(Cause::not_supported("dryRun", other, &["All"])),
        }
    }
    dry
}
