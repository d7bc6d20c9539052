//! What does a template print, given its values?
//!
//! Every node, command and loop round is a step; every level of nesting is a level; everything printed is counted.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pawl_api::deploy::installation::Filesystem;
use serde_json::Value as Json;

use super::ast::{Branch, Command, Node, Operand, Pipe};
use super::funcs::{Function, Run};
use super::value::{Heap, Nothing, Value};
use super::{At, MissingKey, Options, Outcome, Place, Template, fault, format, over_limit};

pub(super) fn execute(
    template: &Template,
    output: &mut String,
    bindings: &Json,
    options: &Options<'_>,
) -> Outcome<()> {
    let mut heap = Heap::new(options.limits, options.missing_key);
    let dot = heap.import(bindings)?;
    let mut machine = Machine {
        heap,
        files: options.files,
        included: BTreeMap::new(),
        printed: 0,
        max_printed: options.limits.output_bytes,
        depth: 0,
        max_depth: options.limits.depth,
    };
    machine.run(template, template.name(), output, &dot)
}

struct Machine<'a> {
    heap: Heap,
    files: Option<&'a Filesystem>,
    /// Files that were included before, understood once.
    included: BTreeMap<String, Rc<Template>>,
    printed: usize,
    max_printed: usize,
    depth: usize,
    max_depth: usize,
}

/// One call of a template.
struct Frame<'a> {
    template: &'a Template,
    /// The innermost comes last.
    variables: Vec<(Arc<str>, Value)>,
}

/// How a list of nodes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl<'m> Machine<'m> {
    fn run(&mut self, template: &Template, name: &str, output: &mut String, dot: &Value) -> Outcome<()> {
        let Some(nodes) = template.trees.get(name) else {
            return fault(format_args!("there is no template {name:?}"));
        };
        let mut frame = Frame { template, variables: vec![(Arc::from("$"), dot.clone())] };
        self.walk(&mut frame, output, dot, nodes).map(|_| ())
    }

    fn walk(
        &mut self,
        frame: &mut Frame<'_>,
        output: &mut String,
        dot: &Value,
        nodes: &[Node],
    ) -> Outcome<Flow> {
        self.depth += 1;
        if self.depth > self.max_depth {
            return over_limit(format_args!("templates and blocks are nested more than {} deep", self.max_depth));
        }
        for node in nodes {
            let flow = self.node(frame, output, dot, node)?;
            if flow != Flow::Next {
                self.depth -= 1;
                return Ok(flow);
            }
        }
        self.depth -= 1;
        Ok(Flow::Next)
    }

    fn node(&mut self, frame: &mut Frame<'_>, output: &mut String, dot: &Value, node: &Node) -> Outcome<Flow> {
        self.heap.step(1)?;
        match node {
            Node::Text(text) => self.print(output, text)?,
            Node::Action(pipe) => {
                let value = self.pipeline(frame, dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.print_value(output, &value).at(pipe.line)?;
                }
            }
            Node::If(branch) => return self.choose(frame, output, dot, branch, false),
            Node::With(branch) => return self.choose(frame, output, dot, branch, true),
            Node::Range(branch) => return self.range(frame, output, dot, branch),
            Node::Call { line, name, pipe } => {
                let template = frame.template;
                if !template.trees.contains_key(name.as_ref()) {
                    return fault(format_args!("the template {name:?} is not defined")).at(*line);
                }
                let dot = match pipe {
                    Some(pipe) => self.pipeline(frame, dot, pipe)?,
                    None => Value::NIL,
                };
                self.run(template, name, output, &dot).at(*line)?;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// `if`, and `with`, which moves the dot.
    fn choose(
        &mut self,
        frame: &mut Frame<'_>,
        output: &mut String,
        dot: &Value,
        branch: &Branch,
        moves_dot: bool,
    ) -> Outcome<Flow> {
        let scope = frame.variables.len();
        let value = self.pipeline(frame, dot, &branch.pipe)?;
        let flow = if self.heap.truth(&value) {
            self.walk(frame, output, if moves_dot { &value } else { dot }, &branch.body)
        } else {
            self.walk(frame, output, dot, &branch.otherwise)
        };
        frame.variables.truncate(scope);
        flow.at(branch.pipe.line)
    }

    fn range(&mut self, frame: &mut Frame<'_>, output: &mut String, dot: &Value, branch: &Branch) -> Outcome<Flow> {
        let line = branch.pipe.line;
        let scope = frame.variables.len();
        let value = self.pipeline(frame, dot, &branch.pipe)?;
        let mut rounds = Rounds { frame, output, branch, any: false };
        match &value {
            Value::List(list) => {
                let items = self.heap.list(*list);
                for (index, item) in (0_i64..).zip(items.iter()) {
                    let item = self.heap.element(item);
                    if rounds.one(self, Value::Int(index), &item).at(line)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, item) in self.heap.entries(*map).at(line)? {
                    let item = self.heap.element(&item);
                    if rounds.one(self, Value::Text(key), &item).at(line)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Int(count) => {
                if branch.pipe.variables.len() > 1 {
                    return fault(format_args!("{count} has no keys: range over it with one variable")).at(line);
                }
                for index in 0..*count {
                    if rounds.one(self, Value::NIL, &Value::Int(index)).at(line)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Nil(_) => {}
            Value::Bool(_) | Value::Float(_) | Value::Text(_) => {
                return fault(format_args!("range cannot go over a {}", value.type_name())).at(line);
            }
        }
        let flow = if rounds.any {
            Flow::Next
        } else {
            self.walk(frame, output, dot, &branch.otherwise).at(line)?
        };
        frame.variables.truncate(scope);
        Ok(flow)
    }

    fn pipeline(&mut self, frame: &mut Frame<'_>, dot: &Value, pipe: &Pipe) -> Outcome<Value> {
        let mut value = None;
        for command in &pipe.commands {
            let result = self.command(frame, dot, command, value).at(command.line)?;
            value = Some(settled(result));
        }
        let value = value.unwrap_or(Value::NIL);
        for variable in &pipe.variables {
            if pipe.assigns {
                assign(frame, variable, value.clone()).at(pipe.line)?;
            } else {
                frame.variables.push((Arc::clone(variable), value.clone()));
            }
        }
        Ok(value)
    }

    /// `input` is what came through the `|`.
    fn command(
        &mut self,
        frame: &mut Frame<'_>,
        dot: &Value,
        command: &Command,
        input: Option<Value>,
    ) -> Outcome<Value> {
        self.heap.step(1)?;
        if let Operand::Function(function) = &command.first {
            return self.call(frame, dot, function, &command.rest, input);
        }
        if input.is_some() || !command.rest.is_empty() {
            return fault(format_args!("{} is no function and takes no arguments", command.first.shown()));
        }
        if let Operand::Nil = command.first {
            return fault("nil is not a command");
        }
        self.operand(frame, dot, &command.first)
    }

    fn operand(&mut self, frame: &mut Frame<'_>, dot: &Value, operand: &Operand) -> Outcome<Value> {
        match operand {
            Operand::Dot => Ok(dot.clone()),
            Operand::Nil => Ok(Value::NIL),
            Operand::Bool(value) => Ok(Value::Bool(*value)),
            Operand::Int(value) => Ok(Value::Int(*value)),
            Operand::Float(value) => Ok(Value::Float(*value)),
            Operand::TooLarge(text) => fault(format_args!("{text} overflows int")),
            Operand::Text(text) => Ok(Value::Text(Arc::clone(text))),
            Operand::Field(path) => self.fields(dot.clone(), path, operand),
            Operand::Variable(name, path) => {
                let found = frame.variables.iter().rev().find(|(known, _)| known == name);
                match found {
                    Some((_, value)) => self.fields(value.clone(), path, operand),
                    None => fault(format_args!("the variable {name} is not defined here")),
                }
            }
            Operand::Function(function) => self.call(frame, dot, function, &[], None),
            Operand::Paren(pipe) => {
                self.depth += 1;
                if self.depth > self.max_depth {
                    return over_limit(format_args!("nested more than {} deep", self.max_depth));
                }
                let value = self.pipeline(frame, dot, pipe);
                self.depth -= 1;
                value
            }
            Operand::Chain(inner, path) => {
                let value = self.operand(frame, dot, inner)?;
                self.fields(settled(value), path, operand)
            }
        }
    }

    fn fields(&mut self, start: Value, path: &[Arc<str>], whole: &Operand) -> Outcome<Value> {
        let mut value = start;
        for field in path {
            value = match value {
                Value::Map(map) => match self.heap.at_key(map, field) {
                    Value::Nil(nothing) => {
                        Value::Nil(Nothing { key: Some(Arc::from(whole.shown())), ..nothing })
                    }
                    found => found,
                },
                Value::Nil(nothing) => {
                    if nothing.element || self.heap.missing_key == MissingKey::Refuse {
                        let what = Value::Nil(nothing).described();
                        return fault(format_args!("{}: {field:?} is sought in {what}", whole.shown()));
                    }
                    Value::NIL
                }
                Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::List(_) => {
                    let kind = value.type_name();
                    return fault(format_args!("{}: a {kind} has no field {field:?}", whole.shown()));
                }
            };
        }
        Ok(value)
    }

    fn call(
        &mut self,
        frame: &mut Frame<'_>,
        dot: &Value,
        function: &'static Function,
        operands: &[Operand],
        input: Option<Value>,
    ) -> Outcome<Value> {
        let given = operands.len() + usize::from(input.is_some());
        function.check_count(given)?;
        if let Run::And | Run::Or = function.run {
            let stops_at = matches!(function.run, Run::Or);
            let mut value = Value::NIL;
            for operand in operands {
                value = self.operand(frame, dot, operand)?;
                if self.heap.truth(&value) == stops_at {
                    return Ok(value);
                }
            }
            return Ok(input.unwrap_or(value));
        }
        let mut arguments = Vec::with_capacity(given);
        for operand in operands {
            arguments.push(self.operand(frame, dot, operand)?);
        }
        arguments.extend(input);
        self.apply(frame, function, &arguments).map_err(|mut fault| {
            if !fault.limit && fault.at.is_none() {
                fault.message = format!("{}: {}", function.name, fault.message);
            }
            fault
        })
    }

    fn apply(&mut self, frame: &Frame<'_>, function: &Function, arguments: &[Value]) -> Outcome<Value> {
        match (function.run, arguments) {
            (Run::Plain(run), arguments) => run(&mut self.heap, arguments),
            (Run::Include, [Value::Text(name), dot]) => self.include(frame, name, dot),
            (Run::ReadFile, [Value::Text(path)]) => match self.file(path) {
                Some(text) => self.heap.text(text),
                None => fault(format_args!("the blueprint has no file {path:?}")),
            },
            (Run::ReadDir, [Value::Text(path)]) => self.directory(path),
            (Run::Include | Run::ReadFile | Run::ReadDir, [first, ..]) => {
                fault(format_args!("the name must be a string, and is {}", first.described()))
            }
            (Run::And | Run::Or | Run::Include | Run::ReadFile | Run::ReadDir, _) => {
                fault("wrong number of arguments")
            }
        }
    }

    /// A template that was defined here, or a file of the blueprint, as text.
    fn include(&mut self, frame: &Frame<'_>, name: &str, dot: &Value) -> Outcome<Value> {
        let mut output = String::new();
        let dot = settled(dot.clone());
        if frame.template.trees.contains_key(name) {
            self.run(frame.template, name, &mut output, &dot)?;
            return self.heap.text(output);
        }
        let template = match self.included.get(name) {
            Some(template) => Rc::clone(template),
            None => {
                let Some(text) = self.file(name) else {
                    return fault(format_args!("there is neither a template nor a file {name:?}"));
                };
                self.heap.take(text.len())?;
                let trees = super::parse::parse(name, text).map_err(|fault| in_file(fault, name))?;
                let template = Rc::new(Template { name: name.to_owned(), trees });
                self.included.insert(name.to_owned(), Rc::clone(&template));
                template
            }
        };
        self.run(&template, name, &mut output, &dot).map_err(|fault| in_file(fault, name))?;
        self.heap.text(output)
    }

    fn file(&self, path: &str) -> Option<&'m str> {
        self.files.and_then(|files| files.file(path))
    }

    /// The names in a folder of the blueprint, as maps with `Name` and `IsDir`.
    fn directory(&mut self, path: &str) -> Outcome<Value> {
        let mut folder = self.files.map(|files| &files.0);
        for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
            folder = folder.and_then(|folder| folder.get(part)).and_then(Json::as_object);
        }
        let Some(folder) = folder else {
            return fault(format_args!("the blueprint has no folder {path:?}"));
        };
        let mut found = Vec::new();
        for (name, entry) in folder {
            let name = self.heap.text(name)?;
            let entry = [(Arc::from("Name"), name), (Arc::from("IsDir"), Value::Bool(entry.is_object()))];
            found.push(self.heap.new_map(entry.into())?);
        }
        self.heap.new_list(found)
    }

    fn print_value(&mut self, output: &mut String, value: &Value) -> Outcome<()> {
        match value {
            Value::Nil(_) => {
                self.heap.refuse_nothing(value)?;
                if self.heap.missing_key == MissingKey::Refuse {
                    return fault("there is nothing to print here");
                }
                self.print(output, "<no value>")
            }
            Value::Text(text) => self.print(output, text),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => {
                let text = format::plain(&mut self.heap, value)?;
                self.print(output, &text)
            }
        }
    }

    fn print(&mut self, output: &mut String, text: &str) -> Outcome<()> {
        self.printed = self.printed.saturating_add(text.len());
        if self.printed > self.max_printed {
            return over_limit(format_args!("prints more than {} bytes", self.max_printed));
        }
        output.push_str(text);
        Ok(())
    }
}

/// The rounds of one loop.
struct Rounds<'a, 'f> {
    frame: &'a mut Frame<'f>,
    output: &'a mut String,
    branch: &'a Branch,
    any: bool,
}

impl Rounds<'_, '_> {
    /// One variable is the item, two are key and item.
    fn one(&mut self, machine: &mut Machine<'_>, key: Value, item: &Value) -> Outcome<Flow> {
        machine.heap.step(1)?;
        self.any = true;
        let pipe = &self.branch.pipe;
        let scope = self.frame.variables.len();
        let values = if pipe.variables.len() > 1 { vec![key, item.clone()] } else { vec![item.clone()] };
        for (variable, value) in pipe.variables.iter().zip(values) {
            if pipe.assigns {
                assign(self.frame, variable, value)?;
            } else {
                self.frame.variables.push((Arc::clone(variable), value));
            }
        }
        let flow = machine.walk(self.frame, self.output, item, &self.branch.body);
        self.frame.variables.truncate(scope);
        flow
    }
}

fn assign(frame: &mut Frame<'_>, variable: &str, value: Value) -> Outcome<()> {
    match frame.variables.iter_mut().rev().find(|(known, _)| known.as_ref() == variable) {
        Some((_, place)) => {
            *place = value;
            Ok(())
        }
        None => fault(format_args!("the variable {variable} is not defined here")),
    }
}

/// Nothing that went through a pipeline is plainly nothing.
fn settled(value: Value) -> Value {
    match value {
        Value::Nil(nothing) => Value::Nil(Nothing { element: false, ..nothing }),
        other => other,
    }
}

fn in_file(mut fault: Box<super::Fault>, name: &str) -> Box<super::Fault> {
    let At { template, line } = fault.at.take().unwrap_or(At { template: None, line: 1 });
    fault.at = Some(At { template: Some(template.unwrap_or_else(|| name.to_owned())), line });
    fault
}
