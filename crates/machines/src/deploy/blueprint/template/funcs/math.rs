//! Sprig's arithmetic. Its whole numbers wrap nowhere: what does not fit is an error.

use super::{Function, argument, at_least, between, exactly, text};
use crate::deploy::blueprint::template::value::{Heap, Value};
use crate::deploy::blueprint::template::{Outcome, fault};

pub(super) const FUNCTIONS: &[Function] = &[
    at_least("add", 0, |_, args| fold(args, 0, i64::checked_add)),
    exactly("add1", 1, |_, args| fold(&[argument(args, 0).clone(), Value::Int(1)], 0, i64::checked_add)),
    exactly("sub", 2, |_, args| pair(args, i64::checked_sub)),
    at_least("mul", 1, |_, args| fold(args, 1, i64::checked_mul)),
    exactly("div", 2, |_, args| pair(args, i64::checked_div)),
    exactly("mod", 2, |_, args| pair(args, i64::checked_rem)),
    at_least("max", 1, |_, args| most(args, i64::max)),
    at_least("biggest", 1, |_, args| most(args, i64::max)),
    at_least("min", 1, |_, args| most(args, i64::min)),
    at_least("addf", 0, |_, args| fold_real(args, |left, right| left + right)),
    exactly("add1f", 1, |_, args| Ok((real(argument(args, 0))? + 1.0).into())),
    at_least("subf", 1, |_, args| fold_real(args, |left, right| left - right)),
    at_least("mulf", 1, |_, args| fold_real(args, |left, right| left * right)),
    at_least("divf", 1, |_, args| fold_real(args, |left, right| left / right)),
    at_least("maxf", 1, |_, args| fold_real(args, f64::max)),
    at_least("minf", 1, |_, args| fold_real(args, f64::min)),
    exactly("ceil", 1, |_, args| Ok(real(argument(args, 0))?.ceil().into())),
    exactly("floor", 1, |_, args| Ok(real(argument(args, 0))?.floor().into())),
    between("round", 2, 3, round),
    exactly("int", 1, |_, args| whole(argument(args, 0)).map(Value::Int)),
    exactly("int64", 1, |_, args| whole(argument(args, 0)).map(Value::Int)),
    exactly("float64", 1, |_, args| real(argument(args, 0)).map(Value::Float)),
    exactly("atoi", 1, |_, args| Ok(Value::Int(text(args, 0)?.parse().unwrap_or(0)))),
    exactly("toDecimal", 1, |_, args| match argument(args, 0) {
        Value::Text(octal) => Ok(Value::Int(i64::from_str_radix(octal, 8).unwrap_or(0))),
        other => whole(other).and_then(|value| {
            Ok(Value::Int(i64::from_str_radix(&value.to_string(), 8).unwrap_or(0)))
        }),
    }),
];

fn fold(args: &[Value], start: i64, combine: fn(i64, i64) -> Option<i64>) -> Outcome<Value> {
    let mut total = start;
    for value in args {
        total = fits(combine(total, whole(value)?))?;
    }
    Ok(Value::Int(total))
}

fn pair(args: &[Value], combine: fn(i64, i64) -> Option<i64>) -> Outcome<Value> {
    let (left, right) = (whole(argument(args, 0))?, whole(argument(args, 1))?);
    fits(combine(left, right)).map(Value::Int)
}

fn fits(result: Option<i64>) -> Outcome<i64> {
    match result {
        Some(result) => Ok(result),
        None => fault("the result is no whole number of 64 bits"),
    }
}

fn most(args: &[Value], combine: fn(i64, i64) -> i64) -> Outcome<Value> {
    let mut best = whole(argument(args, 0))?;
    for value in args.iter().skip(1) {
        best = combine(best, whole(value)?);
    }
    Ok(Value::Int(best))
}

fn fold_real(args: &[Value], combine: fn(f64, f64) -> f64) -> Outcome<Value> {
    let Some((first, rest)) = args.split_first() else { return Ok(0.0.into()) };
    let mut total = real(first)?;
    for value in rest {
        total = combine(total, real(value)?);
    }
    Ok(total.into())
}

/// To so many places; from `.5` on, or from what the third argument says, it goes up.
fn round(_: &mut Heap, args: &[Value]) -> Outcome<Value> {
    let (value, places) = (real(argument(args, 0))?, whole(argument(args, 1))?);
    let up_from = args.get(2).map_or(Ok(0.5), real)?;
    let power = 10_f64.powi(i32::try_from(places).unwrap_or(0).clamp(-300, 300));
    let digit = value * power;
    let fraction = digit.fract().abs();
    let rounded = match (value < 0.0, fraction >= up_from) {
        (false, true) => digit.ceil(),
        (false, false) => digit.floor(),
        (true, true) => digit.floor(),
        (true, false) => digit.ceil(),
    };
    Ok((rounded / power).into())
}

/// Sprig's `toInt64`: a fraction is cut off, a text that is no number is zero.
fn whole(value: &Value) -> Outcome<i64> {
    match value {
        Value::Int(value) => Ok(*value),
        Value::Float(value) => Ok(*value as i64),
        Value::Bool(value) => Ok(i64::from(*value)),
        Value::Text(text) => Ok(text.parse::<i64>().unwrap_or_else(|_| text.parse::<f64>().unwrap_or(0.0) as i64)),
        other @ (Value::Nil(_) | Value::List(_) | Value::Map(_)) => {
            fault(format_args!("expected a number, found {}", other.described()))
        }
    }
}

fn real(value: &Value) -> Outcome<f64> {
    match value {
        Value::Int(value) => Ok(*value as f64),
        Value::Float(value) => Ok(*value),
        Value::Bool(value) => Ok(f64::from(u8::from(*value))),
        Value::Text(text) => Ok(text.parse().unwrap_or(0.0)),
        other @ (Value::Nil(_) | Value::List(_) | Value::Map(_)) => {
            fault(format_args!("expected a number, found {}", other.described()))
        }
    }
}
