//! Tests of which schemas are supported, and which violations are reported.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn violation_texts(schema: &Value, value: &Value) -> Vec<String> {
    assert_eq!(check_schema(schema), Ok(()), "{schema}");
    find_violations(schema, value).iter().map(ToString::to_string).collect()
}

/// Each keyword with values that match it and values that do not, as in the public JSON Schema test suite.
#[test]
fn each_keyword_follows_the_standard() {
    let table = [
        (
            json!({"type": "integer"}),
            vec![json!(1), json!(1.0), json!(-3)],
            vec![json!(1.5), json!("1"), json!(null)],
        ),
        (json!({"type": ["string", "null"]}), vec![json!("a"), json!(null)], vec![json!(1), json!([])]),
        (json!({"type": "boolean"}), vec![json!(false)], vec![json!(0), json!("false")]),
        (
            json!({"enum": [1, "a", [2]]}),
            vec![json!(1.0), json!("a"), json!([2])],
            vec![json!("1"), json!([3])],
        ),
        (json!({"const": {"a": 1}}), vec![json!({"a": 1.0})], vec![json!({"a": 1, "b": 2}), json!(1)]),
        (json!({"required": ["a"]}), vec![json!({"a": null}), json!("no object")], vec![json!({"b": 1})]),
        (
            json!({"properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            vec![json!({}), json!({"a": "x"}), json!([1])],
            vec![json!({"a": 1}), json!({"b": "x"})],
        ),
        (
            json!({"additionalProperties": {"type": "integer"}}),
            vec![json!({"a": 1})],
            vec![json!({"a": 1, "b": "2"})],
        ),
        (json!({"propertyNames": {"maxLength": 2}}), vec![json!({"ab": 1})], vec![json!({"abc": 1})]),
        (json!({"minProperties": 1, "maxProperties": 2}), vec![json!({"a": 1})], vec![json!({})]),
        (
            json!({"items": {"type": "integer"}}),
            vec![json!([]), json!([1, 2]), json!({})],
            vec![json!([1, "2"])],
        ),
        (
            json!({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}),
            vec![json!([]), json!([1, "a"])],
            vec![json!(["a"]), json!([1, 2])],
        ),
        (json!({"contains": {"const": 5}}), vec![json!([1, 5])], vec![json!([]), json!([1])]),
        (json!({"minItems": 1, "maxItems": 2}), vec![json!([1])], vec![json!([]), json!([1, 2, 3])]),
        (
            json!({"uniqueItems": true}),
            vec![json!([1, 2]), json!([1, true])],
            vec![json!([1, 1.0]), json!([[1], [1]])],
        ),
        (
            json!({"minLength": 2, "maxLength": 3}),
            vec![json!("äö"), json!(1)],
            vec![json!("ä"), json!("abcd")],
        ),
        (json!({"pattern": "^a+$"}), vec![json!("aa"), json!(7)], vec![json!("ab")]),
        (
            json!({"minimum": 1, "exclusiveMaximum": 3}),
            vec![json!(1), json!(2.9)],
            vec![json!(0.9), json!(3)],
        ),
        (
            json!({"exclusiveMinimum": 1, "maximum": 3}),
            vec![json!(1.1), json!(3)],
            vec![json!(1), json!(3.1)],
        ),
        (json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}), vec![json!(1)], vec![json!(0), json!(3)]),
        (json!({"anyOf": [{"type": "string"}, {"minimum": 2}]}), vec![json!("a"), json!(2)], vec![json!(1)]),
        (
            json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}),
            vec![json!(1), json!(2.5)],
            vec![json!(3), json!(1.5)],
        ),
        (json!({"not": {"type": "integer"}}), vec![json!("a")], vec![json!(1)]),
        (
            json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}),
            vec![json!({"a": 1, "b": 1}), json!({"c": 1})],
            vec![json!({"a": 1}), json!({})],
        ),
        (
            json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}),
            vec![json!("x")],
            vec![json!(1)],
        ),
        (
            json!({"properties": {"next": {"$ref": "#"}, "is": {"type": "integer"}}, "required": ["is"]}),
            vec![json!({"is": 1, "next": {"is": 2}})],
            vec![json!({"is": 1, "next": {"is": 2, "next": {}}})],
        ),
        (json!({"properties": {"a": false}}), vec![json!({"b": 1})], vec![json!({"a": 1})]),
        (
            json!({"minimum": 9_007_199_254_740_993_u64}),
            vec![json!(9_007_199_254_740_993_u64)],
            vec![json!(9_007_199_254_740_992_u64)],
        ),
    ];
    for (schema, meet, miss) in &table {
        for value in meet {
            assert_eq!(violation_texts(schema, value), Vec::<String>::new(), "{schema} is met by {value}");
        }
        for value in miss {
            assert!(!violation_texts(schema, value).is_empty(), "{schema} is not met by {value}");
        }
    }
}

#[test]
fn violations_name_their_location() {
    let schema = json!({
        "type": "object",
        "required": ["verdict", "risks"],
        "additionalProperties": false,
        "properties": {
            "verdict": {"enum": ["approve", "send_back"]},
            "risks": {"type": "array", "items": {"type": "object", "properties": {"a/b": {"type": "string"}}}},
        },
    });
    assert_eq!(
        violation_texts(&schema, &json!({"verdict": "maybe", "risks": [{}, {"a/b": 7}], "more": 1})),
        [
            "`/more`: it is not known; there are risks, verdict",
            "`/risks/1/a~1b`: it must be of type string, and is a number",
            "`/verdict`: it must be one of \"approve\", \"send_back\", and is \"maybe\"",
        ]
    );
    assert_eq!(violation_texts(&schema, &json!({"verdict": "approve"})), ["`/risks`: it is missing"]);
    assert_eq!(violation_texts(&schema, &json!([])), ["it must be of type object, and is an array"]);
    let forms = json!({"items": {"anyOf": [{"type": "string"}, {"required": ["path"]}], "minLength": 1}});
    let schema = json!({"properties": {"steps": forms}});
    assert_eq!(
        violation_texts(&schema, &json!({"steps": ["a", {"path": 1}, {"file": 1}]})),
        [
            "`/steps/2`: it is of none of the 2 forms that it may have (`/steps/2`: it must be of type string, and is an \
         object; or `/steps/2/path`: it is missing)"
        ]
    );
    let many = json!({"items": {"type": "string"}});
    assert_eq!(
        violation_texts(&many, &json!([1, 2, 3, 4, 5, 6, 7])).len(),
        5,
        "a model is told a few at once"
    );
}

#[test]
fn unsupported_schema_is_rejected_with_its_location() {
    for (schema, at, what) in [
        (json!(true), "", "must be an object"),
        (json!({"type": "text"}), "/type", "one of null, boolean"),
        (json!({"properties": {"a": {"typ": "string"}}}), "/properties/a/typ", "`typ` is not held here"),
        (json!({"unevaluatedProperties": false}), "/unevaluatedProperties", "is not held here"),
        (json!({"required": "a"}), "/required", "a list of names"),
        (json!({"minLength": -1}), "/minLength", "a whole number"),
        (json!({"pattern": "(?=a)"}), "/pattern", "a regular expression"),
        (json!({"anyOf": []}), "/anyOf", "not an empty one"),
        (json!({"items": [1]}), "/items", "an object, true or false"),
        (json!({"$ref": "https://example.org/s.json"}), "/$ref", "nothing is fetched"),
        (json!({"$ref": "other.json#/a"}), "/$ref", "nothing is fetched"),
        (json!({"$ref": "#/$defs/none"}), "/$ref", "a pointer into this schema"),
        (json!({"$ref": "#"}), "", "leads back to itself"),
        (
            json!({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
            "/$defs/a/anyOf/0",
            "leads back to itself",
        ),
    ] {
        let error = check_schema(&schema).expect_err("it is refused");
        assert!(error.at == at && error.what.contains(what), "{schema}: {error}");
    }
    let deep = (0..100).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(check_schema(&deep).is_err_and(|error| error.what.contains("deeper")));
}

#[test]
fn validation_of_multiplying_references_terminates() {
    // Each level asks twice for the next one.
    let defs: serde_json::Map<String, Value> = (0..40)
        .map(|nth| {
            let next = format!("#/$defs/d{}", nth + 1);
            (format!("d{nth}"), json!({"items": {"allOf": [{"$ref": next}, {"$ref": next}]}}))
        })
        .chain([("d40".to_owned(), json!({"type": "string"}))])
        .collect();
    let schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
    let value = (0..40).fold(json!("x"), |inner, _| json!([inner]));
    assert_eq!(violation_texts(&schema, &value), ["it takes too much to check it"]);
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z/~]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The schema that matches only this value, built differently from the one under test.
fn schema_of_exactly(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => json!({"enum": [value]}),
        Value::Array(items) => {
            let first: Vec<Value> = items.iter().map(schema_of_exactly).collect();
            let count = items.len();
            let mut schema = json!({"type": "array", "minItems": count, "items": false});
            if count > 0 {
                schema["prefixItems"] = json!(first);
            }
            schema
        }
        Value::Object(map) => {
            let named: serde_json::Map<String, Value> =
                map.iter().map(|(name, value)| (name.clone(), schema_of_exactly(value))).collect();
            let names: Vec<&String> = map.keys().collect();
            json!({"type": "object", "properties": named, "required": names, "additionalProperties": false})
        }
    }
}

proptest! {
    #[test]
    fn a_value_meets_the_schema_made_of_it_and_no_other_value_does(one in arbitrary_json(), other in arbitrary_json()) {
        let schema = schema_of_exactly(&one);
        prop_assert_eq!(check_schema(&schema), Ok(()));
        prop_assert_eq!(find_violations(&schema, &one), vec![]);
        prop_assert_eq!(find_violations(&schema, &other).is_empty(), one == other);
    }

    #[test]
    fn each_problem_points_into_the_value_or_beside_it(one in arbitrary_json(), other in arbitrary_json()) {
        for problem in find_violations(&schema_of_exactly(&one), &other) {
            let parent = problem.pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
            prop_assert!(other.pointer(parent).is_some(), "{} of {}", problem.pointer, other);
        }
    }
}
