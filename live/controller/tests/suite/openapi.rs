//! Tests that the OpenAPI document is current, and that every route answers according to it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::http::{HttpResponse, get, local, send};
use crate::support::{Fake, World, views};

const DOCUMENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/openapi.json"
);

/// Environment variable with which the test rewrites the document.
const UPDATE: &str = "TERRACE_UPDATE_OPENAPI";

#[test]
fn openapi_document_is_current() {
    let now = serde_json::to_string_pretty(&controller::openapi()).unwrap() + "\n";
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(DOCUMENT, now).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(DOCUMENT).unwrap_or_default();
    assert!(
        kept == now,
        "docs/reference/openapi.json is stale: {UPDATE}=1 cargo test -p controller openapi"
    );
}

/// Forbids undocumented fields in objects, so that an answer with such a field is found.
fn strict(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(strict);
            if fields.get("properties").is_some_and(Value::is_object)
                && !fields.contains_key("oneOf")
            {
                fields.entry("additionalProperties").or_insert(false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strict),
        _ => {}
    }
}

/// Checks values against a schema of the document.
struct Schemas(Value);

impl Schemas {
    fn read() -> Self {
        let mut components = controller::openapi()["components"].clone();
        strict(&mut components);
        Self(components)
    }

    fn check(&self, schema: &Value, value: &Value, what: &str) {
        let mut root = schema.clone();
        root["components"] = self.0.clone();
        let validator = jsonschema::draft202012::new(&root).expect("a schema");
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}");
    }
}

/// One request for every operation, by method and path in the table of routes.
fn requests() -> Vec<(&'static str, &'static str, String)> {
    let ended = json!({ "session": 9, "seq": 2, "jobs": [] }).to_string();
    let register =
        json!({ "protocol": manager::wire::PROTOCOL, "session": 9, "version": "x" }).to_string();
    let report = serde_json::to_string(&views::report(9, 1, 2)).unwrap();
    let order = |method: &str, path: &str, body: &str| send(method, path, "", body);
    let table: [(&str, &str, String); 37] = [
        ("get", "/v1/status", get("/v1/status", "")),
        ("get", "/v1/tiers", get("/v1/tiers", "")),
        ("get", "/v1/volumes", get("/v1/volumes", "")),
        (
            "get",
            "/v1/volumes/{volume}",
            get("/v1/volumes/db-main", ""),
        ),
        (
            "get",
            "/v1/volumes/{volume}/history",
            get("/v1/volumes/mail/history?last=1h", ""),
        ),
        (
            "get",
            "/v1/volumes/{volume}/why",
            get("/v1/volumes/mail/why", ""),
        ),
        (
            "get",
            "/v1/volumes/{volume}/why-not/{tier}",
            get("/v1/volumes/mail/why-not/fast", ""),
        ),
        (
            "get",
            "/v1/place",
            get("/v1/place?size=100GiB&class=gold", ""),
        ),
        ("get", "/v1/plan", get("/v1/plan?host=alpha", "")),
        ("get", "/v1/plans/{generation}", get("/v1/plans/42", "")),
        (
            "post",
            "/v1/plans/{generation}/apply",
            order("POST", "/v1/plans/42/apply", r#"{"moves":[1]}"#),
        ),
        (
            "post",
            "/v1/plans/{generation}/reject",
            order("POST", "/v1/plans/42/reject", ""),
        ),
        ("get", "/v1/jobs", get("/v1/jobs?limit=10", "")),
        (
            "post",
            "/v1/jobs/{job}/cancel",
            order("POST", "/v1/jobs/117/cancel", "{}"),
        ),
        ("get", "/v1/events", get("/v1/events?after=2&limit=10", "")),
        ("get", "/v1/outcomes", get("/v1/outcomes", "")),
        ("get", "/v1/responses", get("/v1/responses?limit=1", "")),
        ("post", "/v1/pause", order("POST", "/v1/pause", "")),
        ("post", "/v1/resume", order("POST", "/v1/resume", "{}")),
        ("post", "/v1/reload", order("POST", "/v1/reload", "{}")),
        (
            "put",
            "/v1/tiers/{tier}/state",
            order("PUT", "/v1/tiers/fast/state", r#"{"state":"cordoned"}"#),
        ),
        (
            "put",
            "/v1/volumes/{volume}/pin",
            order("PUT", "/v1/volumes/mail/pin", r#"{"tier":"slow"}"#),
        ),
        (
            "put",
            "/v1/volumes/{volume}/throttle",
            order(
                "PUT",
                "/v1/volumes/mail/throttle",
                r#"{"to":{"iops":500,"lasting_ns":60000000000}}"#,
            ),
        ),
        (
            "put",
            "/v1/modes/{goal}",
            order("PUT", "/v1/modes/space", r#"{"mode":"partial"}"#),
        ),
        ("get", "/v1/export/facts", get("/v1/export/facts", "")),
        (
            "post",
            "/v1/agents/{host}/register",
            order("POST", "/v1/agents/alpha/register", &register),
        ),
        (
            "post",
            "/v1/agents/{host}/report",
            order("POST", "/v1/agents/alpha/report", &report),
        ),
        (
            "post",
            "/v1/agents/{host}/jobs",
            order("POST", "/v1/agents/alpha/jobs", &ended),
        ),
        ("get", "/v1/openapi.json", get("/v1/openapi.json", "")),
        ("get", "/metrics", get("/metrics", "")),
        ("get", "/healthz", get("/healthz", "")),
        ("get", "/", get("/", "")),
        ("get", "/page/parts", get("/page/parts?sort=p99", "")),
        ("get", "/page/page.css", get("/page/page.css", "")),
        ("get", "/page/page.js", get("/page/page.js", "")),
        ("get", "/page/sign-in.js", get("/page/sign-in.js", "")),
        // A repeated report is rejected with the error type of the wire.
        (
            "post",
            "/v1/agents/{host}/report",
            order("POST", "/v1/agents/alpha/report", &report),
        ),
    ];
    table.into()
}

#[test]
fn each_route_replies_as_documented() {
    let document = controller::openapi();
    let schemas = Schemas::read();
    let world = World::start(Fake::new(12));
    let mut seen = BTreeSet::new();
    for (method, path, request) in requests() {
        let operation = &document["paths"][path][method];
        assert!(
            operation.is_object(),
            "{method} {path} is not in the document"
        );
        let answer = local(&world, &request);
        let response = &operation["responses"][answer.status.to_string()];
        assert!(
            response.is_object(),
            "{method} {path}: {} {}",
            answer.status,
            answer.text()
        );
        let first = seen.insert((method, path));
        assert_eq!(
            answer.status,
            if first { 200 } else { 409 },
            "{method} {path}"
        );
        let content_type = answer.header("content-type").unwrap();
        let content = &response["content"][content_type];
        assert!(
            content.is_object(),
            "{method} {path} answers with {content_type}"
        );
        if content_type == "application/json" {
            schemas.check(&content["schema"], &answer.json(), path);
        }
        let (_, body) = request.split_once("\n\n").unwrap();
        if !body.is_empty() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            schemas.check(schema, &serde_json::from_str(body).unwrap(), path);
        }
        // An error also matches its schema.
        let refused = local(
            &world,
            &get(&format!("{}?no-such-key=1", concrete(path)), ""),
        );
        check_refusal(&schemas, operation, &refused, method, path);
    }
    let documented: usize = document["paths"]
        .as_object()
        .unwrap()
        .values()
        .map(|operations| operations.as_object().unwrap().len())
        .sum();
    assert_eq!(seen.len(), documented, "every route is asked here");
}

fn concrete(path: &str) -> String {
    path.replace("{volume}", "mail")
        .replace("{tier}", "fast")
        .replace("{generation}", "42")
}

fn check_refusal(
    schemas: &Schemas,
    operation: &Value,
    refused: &HttpResponse,
    method: &str,
    path: &str,
) {
    assert!(
        (400..500).contains(&refused.status),
        "{path}: {}",
        refused.status
    );
    let content = &operation["responses"]["default"]["content"]["application/json"];
    if method == "get" && content.is_object() {
        schemas.check(&content["schema"], &refused.json(), path);
    }
}

/// The check of schemas can fail.
#[test]
fn schema_check_finds_unknown_and_missing_fields() {
    let schemas = Schemas::read();
    let schema = json!({ "$ref": "#/components/schemas/StatusView" });
    let good = serde_json::to_value(views::status(3)).unwrap();
    schemas.check(&schema, &good, "as it is");
    for change in [json!({ "more": 1 }), json!({ "volumes": "three" })] {
        let mut bad = good.clone();
        bad.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let checked = std::panic::catch_unwind(|| schemas.check(&schema, &bad, "changed"));
        assert!(checked.is_err(), "{change}");
    }
    let mut bad = good;
    bad.as_object_mut().unwrap().remove("paused");
    assert!(std::panic::catch_unwind(|| schemas.check(&schema, &bad, "less")).is_err());
}
