// Cuts the operations that Pawl uses out of GitHub's OpenAPI description, with the schemas they refer to.
//
//   npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
//   node cut-openapi.mjs package/generated/api.github.com.json > github-openapi.json
//   node cut-openapi.mjs package/generated/api.github.com.json examples > ../tests/data/github-examples.json
//
// What only people read (descriptions, links) is left out; what a machine can check is kept word for word. GitHub's
// examples of good answers go into a file of their own, for tests.

import { readFileSync } from 'node:fs';

const OPERATIONS = [
  ['post', '/app/installations/{installation_id}/access_tokens'],
  ['get', '/repos/{owner}/{repo}'],
  ['get', '/repos/{owner}/{repo}/branches'],
  ['post', '/repos/{owner}/{repo}/check-runs'],
  ['get', '/repos/{owner}/{repo}/check-runs/{check_run_id}'],
  ['patch', '/repos/{owner}/{repo}/check-runs/{check_run_id}'],
  ['get', '/repos/{owner}/{repo}/collaborators/{username}/permission'],
  ['get', '/repos/{owner}/{repo}/commits/{ref}'],
  ['get', '/repos/{owner}/{repo}/commits/{ref}/check-runs'],
  ['get', '/repos/{owner}/{repo}/commits/{ref}/statuses'],
  ['get', '/repos/{owner}/{repo}/compare/{basehead}'],
  ['get', '/repos/{owner}/{repo}/git/trees/{tree_sha}'],
  ['get', '/repos/{owner}/{repo}/issues/comments'],
  ['get', '/repos/{owner}/{repo}/issues/{issue_number}/comments'],
  ['post', '/repos/{owner}/{repo}/issues/{issue_number}/comments'],
  ['get', '/repos/{owner}/{repo}/pulls'],
  ['get', '/repos/{owner}/{repo}/pulls/{pull_number}'],
  ['get', '/repos/{owner}/{repo}/pulls/{pull_number}/files'],
  ['post', '/repos/{owner}/{repo}/statuses/{sha}'],
];

const FOR_PEOPLE = ['description', 'summary', 'example', 'examples', 'externalDocs', 'tags', 'title', 'deprecated'];

const whole = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const components = {};

// Inside `properties` the keys are names of GitHub's, not words of OpenAPI.
function cut(value, names = false) {
  if (Array.isArray(value)) return value.map((item) => cut(item));
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.$ref === 'string') keep(value.$ref);
  const kept = Object.entries(value).filter(
    ([key]) => names || !(FOR_PEOPLE.includes(key) || key.startsWith('x-')),
  );
  return Object.fromEntries(kept.map(([key, inner]) => [key, cut(inner, !names && key === 'properties')]));
}

function keep(reference) {
  const [, , section, name] = reference.split('/');
  components[section] ??= {};
  if (name in components[section]) return;
  components[section][name] = null;
  components[section][name] = cut(whole.components[section][name]);
}

const lines = (object, write) =>
  `{\n${Object.keys(object).sort().map((key) => `${JSON.stringify(key)}: ${write(object[key])}`).join(',\n')}\n}`;

// The first example of each operation's answer, by the operation's name.
function examples() {
  const found = {};
  for (const [method, path] of OPERATIONS) {
    const { operationId, responses } = whole.paths[path][method];
    for (const status of ['200', '201']) {
      const [example] = Object.values(responses[status]?.content?.['application/json']?.examples ?? {});
      if (!example) continue;
      const value = example.$ref ? whole.components.examples[example.$ref.split('/').pop()].value : example.value;
      // Scanners for leaked credentials cannot know that this one is made up.
      if (value.token) value.token = 'an-example-of-a-token';
      found[operationId] = { method: method.toUpperCase(), path, status: Number(status), value };
    }
  }
  return found;
}

// One line per operation and per schema, so that a later version shows what it changes.
function description() {
  const paths = {};
  for (const [method, path] of OPERATIONS) {
    const { operationId, parameters, requestBody, responses } = whole.paths[path][method];
    paths[path] ??= {};
    paths[path][method] = cut({ operationId, parameters, requestBody, responses });
  }
  const { title, version, license } = whole.info;
  return {
    components: lines(components, (section) => lines(section, JSON.stringify)),
    info: JSON.stringify({ title, version, license }),
    openapi: JSON.stringify(whole.openapi),
    paths: lines(paths, (path) => lines(path, JSON.stringify)),
  };
}

const out =
  process.argv[3] === 'examples' ? lines(examples(), JSON.stringify) : lines(description(), (text) => text);
process.stdout.write(`${out}\n`);
