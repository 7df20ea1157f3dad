//! The JSON of a dump, against its published schema.

use serde_json::{Value, json};

use super::program::Program;
use super::{dump, for_each, json_of};

/// Whether a value has the fields and types that the published schema gives it, down to the leaves.
fn conforms(value: &Value, schema: &Value, defs: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return conforms(value, &defs[name], defs);
    }
    let is = |kind: &Value| match kind.as_str() {
        Some("null") => value.is_null(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    let fits = match (&schema["type"], &schema["enum"], &schema["const"]) {
        (Value::Array(kinds), ..) => kinds.iter().any(is),
        (kind @ Value::String(_), ..) => is(kind),
        (_, Value::Array(values), _) => values.contains(value),
        (.., constant) => constant == value,
    };
    if !fits {
        return Err(format!("{value} is not {schema}"));
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(item, &schema["items"], defs)?;
    }
    if let Some(fields) = value.as_object() {
        let described = schema["properties"].as_object().ok_or("no properties")?;
        let required = schema["required"].as_array().ok_or("nothing required")?;
        let names: Vec<Value> = fields.keys().map(|name| json!(name)).collect();
        if names.len() != required.len() || !required.iter().all(|name| names.contains(name)) {
            return Err(format!("{names:?}, not {required:?}"));
        }
        for (name, field) in fields {
            let schema = described.get(name).ok_or("a field is not described")?;
            conforms(field, schema, defs)?;
        }
    }
    Ok(())
}

#[test]
fn json_is_what_its_schema_says() {
    let schema = include_str!("../../unwind-user/src/dump/dump.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    for_each("schema", |python| {
        let program = Program::start(python, "held.py", &["threads", "3"])?;
        let document = json_of(&dump(program.pid, &["--json"]))?;
        conforms(&document, &schema, &schema["$defs"])?;
        let mut other = document;
        other["processes"][0]["threads"][0]["state"] = json!(1);
        match conforms(&other, &schema, &schema["$defs"]) {
            Ok(()) => Err("anything conforms".to_owned()),
            Err(_) => Ok("as described".to_owned()),
        }
    });
}
