//! OpenAPI 3.1 document, generated from the table of routes. Its schemas are JSON Schema 2020-12, as OpenAPI 3.1 requires.

use client::body::ErrorBody;
use manager::wire::WireRefusal;
use model::Goal;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::access::Role;
use crate::routes::{Form, Method, ROUTES, Route};

/// Path of the schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// Returns the OpenAPI document of this version.
pub fn openapi() -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|s| {
            s.definitions_path = SCHEMAS.into();
            s.meta_schema = None;
        })
    };
    let mut document = Document {
        asked: settings().for_deserialize().into_generator(),
        answered: settings().for_serialize().into_generator(),
    };
    let mut paths = Map::new();
    for route in ROUTES {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[method(route)] = document.operation(route);
    }
    let mut schemas = document.asked.take_definitions(true);
    schemas.extend(document.answered.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "terrace controller",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Queries and orders to a Terrace controller. Names of durations, sizes and rates end with their unit. Unknown fields and query keys are rejected. If several hosts have a volume or tier of one name, use `host/name`, percent-encoded.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Secret from the controller's token file. The unix socket requires no token.",
                },
            },
        },
    })
}

fn method(route: &Route) -> &'static str {
    match route.method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
    }
}

/// `POST /v1/jobs/{job}/cancel` is `post_v1_jobs_job_cancel`.
fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|w| !w.is_empty());
    let all: Vec<&str> = std::iter::once(method(route)).chain(words).collect();
    all.join("_")
}

/// Schemas of requests and of replies. They differ, because a type may have fields that are optional in requests and always
/// present in replies.
struct Document {
    asked: SchemaGenerator,
    answered: SchemaGenerator,
}

impl Document {
    fn operation(&mut self, route: &Route) -> Value {
        let mut operation = json!({
            "operationId": operation_id(route),
            "summary": route.summary,
            "parameters": self.parameters(route),
            "responses": self.responses(route),
        });
        if let Some(body) = route.body {
            let schema = body(&mut self.asked);
            operation["requestBody"] =
                json!({ "content": { "application/json": { "schema": schema } } });
        }
        match route.role {
            Some(role) => {
                operation["security"] = json!([{ "token": [role.name()] }]);
                operation["description"] = format!("Requires the role {}.", role.name()).into();
            }
            None => operation["security"] = json!([]),
        }
        operation
    }

    fn parameters(&mut self, route: &Route) -> Vec<Value> {
        let parts = route.path.split('/').filter_map(|part| {
            let name = part.strip_prefix('{')?.strip_suffix('}')?;
            let schema = self.part(name);
            Some(json!({ "name": name, "in": "path", "required": true, "schema": schema }))
        });
        let mut parameters: Vec<Value> = parts.collect();
        if let Some(query) = route.query {
            parameters.extend(self.query(query));
        }
        parameters
    }

    fn part(&mut self, name: &str) -> Schema {
        match name {
            "generation" => self.asked.subschema_for::<u64>(),
            "job" => self.asked.subschema_for::<u32>(),
            "goal" => self.asked.subschema_for::<Goal>(),
            _ => self.asked.subschema_for::<String>(),
        }
    }

    /// Returns the fields of the query's type as parameters; the type itself is not part of the document.
    fn query(&mut self, query: fn(&mut SchemaGenerator) -> Schema) -> Vec<Value> {
        let reference = query(&mut self.asked);
        let name = reference.get("$ref").and_then(Value::as_str);
        let name = name.and_then(|r| r.rsplit('/').next()).unwrap_or_default();
        let definition = self.asked.definitions_mut().remove(name);
        let Some(Value::Object(mut definition)) = definition else {
            return vec![];
        };
        let Some(Value::Object(fields)) = definition.remove("properties") else {
            return vec![];
        };
        let parameter = |(name, mut schema): (String, Value)| {
            let description = schema.as_object_mut().and_then(|s| s.remove("description"));
            json!({ "name": name, "in": "query", "description": description, "schema": schema })
        };
        fields.into_iter().map(parameter).collect()
    }

    fn responses(&mut self, route: &Route) -> Value {
        let content = match route.form {
            Form::Json(schema) => {
                let schema = schema(&mut self.answered);
                json!({ "application/json": { "schema": schema } })
            }
            Form::Document => json!({ "application/json": { "schema": { "type": "object" } } }),
            Form::Text(content_type) => json!({ content_type: { "schema": { "type": "string" } } }),
            Form::Html => json!({ "text/html; charset=utf-8": { "schema": { "type": "string" } } }),
        };
        let mut responses = json!({ "200": { "description": route.summary, "content": content } });
        let error = self.answered.subschema_for::<ErrorBody>();
        let error = match route.form {
            Form::Html => json!({ "description": "Error as a page" }),
            _ => json!({
                "description": "Error",
                "content": { "application/json": { "schema": error } },
            }),
        };
        responses["default"] = error;
        if route.role == Some(Role::Agent) {
            let schema = self.answered.subschema_for::<WireRefusal>();
            responses["409"] = json!({
                "description": "The message is rejected",
                "content": { "application/json": { "schema": schema } },
            });
        }
        responses
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All references in the document.
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, inner)| match inner {
                Value::String(target) if name == "$ref" => {
                    found.insert(target);
                }
                inner => references(inner, found),
            }),
            Value::Array(items) => items.iter().for_each(|i| references(i, found)),
            _ => {}
        }
    }

    #[test]
    fn schema_references_resolve_and_none_is_unused() {
        let document = openapi();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let all: BTreeSet<String> = schemas
            .keys()
            .map(|name| format!("#{SCHEMAS}/{name}"))
            .collect();
        assert_eq!(all, found.into_iter().map(String::from).collect());
        assert!(schemas.len() > 30, "{}", schemas.len());
    }

    #[test]
    fn operation_ids_are_unique() {
        let ids: BTreeSet<String> = ROUTES.iter().map(operation_id).collect();
        assert_eq!(ids.len(), ROUTES.len());
        assert!(ids.contains("post_v1_jobs_job_cancel"));
    }

    #[test]
    fn schemas_of_one_name_are_equal_in_requests_and_replies() {
        let settings = || SchemaSettings::draft2020_12();
        let (mut asked, mut answered) = (
            settings().for_deserialize().into_generator(),
            settings().for_serialize().into_generator(),
        );
        for route in ROUTES {
            if let Some(body) = route.body {
                body(&mut asked);
            }
            if let Form::Json(schema) = route.form {
                schema(&mut answered);
            }
        }
        let (asked, answered) = (
            asked.take_definitions(true),
            answered.take_definitions(true),
        );
        for (name, schema) in &asked {
            if let Some(other) = answered.get(name) {
                assert_eq!(schema, other, "{name}");
            }
        }
    }

    #[test]
    fn path_and_query_parts_are_parameters() {
        let document = openapi();
        let history = &document["paths"]["/v1/volumes/{volume}/history"]["get"];
        let names: Vec<&str> = history["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["volume", "last"]);
        let apply = &document["paths"]["/v1/plans/{generation}/apply"]["post"];
        assert_eq!(apply["security"], json!([{ "token": ["operate"] }]));
    }
}
